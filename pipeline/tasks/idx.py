"""Reads IDX files, plain or gzip: the format of MNIST and Fashion-MNIST.

Format: two zero bytes, the type (8: unsigned byte), the number of axes, each axis' length as a big-endian 32-bit
number, then the bytes.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from io import BufferedIOBase
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from pipeline.tasks.faults import BrokenSource

UNSIGNED_BYTE = 8


def read_idx(path: Path, axes: int) -> UInt8[np.ndarray, "row ..."]:
    """The array in an IDX file of unsigned bytes with this many axes.

    Raises:
        BrokenSource: a wrong magic number, fewer or more bytes than the header announces, or broken gzip; with the
            row where the data end.
    """
    try:
        with _open(path) as file:
            shape = _header(path, file, axes)
            row_bytes = int(np.prod(shape[1:], dtype=np.int64))
            values = _values(path, file, shape[0], row_bytes)
    except gzip.BadGzipFile as error:
        raise BrokenSource(f"{path} is not gzip: {error}") from error
    return values.reshape(shape)


def _open(path: Path) -> BufferedIOBase:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


def _header(path: Path, file: BufferedIOBase, axes: int) -> tuple[int, ...]:
    wanted = bytes([0, 0, UNSIGNED_BYTE, axes])
    head = _take(file, 4 + 4 * axes)
    if head[:4] != wanted:
        raise BrokenSource(
            f"{path}: wrong magic number 0x{head[:4].hex()}, an IDX file of {axes} axes has {_hex(wanted)}"
        )
    if len(head) < 4 + 4 * axes:
        raise BrokenSource(f"{path}: the header ends after {len(head)} bytes")
    return struct.unpack(f">{axes}I", head[4:])


def _hex(magic: bytes) -> str:
    return f"0x{magic.hex()}"


def _values(path: Path, file: BufferedIOBase, rows: int, row_bytes: int) -> np.ndarray:
    content = _take(file, rows * row_bytes)
    if len(content) < rows * row_bytes:
        row = len(content) // max(1, row_bytes)
        raise BrokenSource(f"{path}, row {row}: the file ends here, its header announces {rows} rows")
    if _take(file, 1):
        raise BrokenSource(f"{path}, row {rows}: bytes follow after the {rows} rows that the header announces")
    return np.frombuffer(content, np.uint8)


def _take(file: BufferedIOBase, count: int) -> bytes:
    """Up to `count` bytes, read in pieces: a header that lies cannot make this allocate what is not there.

    A gzip stream that ends early or is damaged gives what came before.
    """
    pieces: list[bytes] = []
    while count > 0:
        try:
            piece = file.read1(min(count, 2**16))  # read() would lose what came before an early end
        except (EOFError, zlib.error):
            break
        if not piece:
            break
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)
