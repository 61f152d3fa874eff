"""Inputs that occur more than once, found by content hash.

Every input gets a hash of its real tokens, stored beside it: the cache runs each distinct input once by looking at
these 16 bytes instead of the inputs, and what train and test share is counted with them, in bounded memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import zarr
from jaxtyping import UInt64

from pipeline.tasks.task import Block

HASHES_AT_ONCE = 2**18
"""Hashes in memory at a time (4 MiB); more of them take more passes over the stored hashes."""


def content_hashes(block: Block) -> UInt64[np.ndarray, "example 2"]:
    """blake2b, 128 bits, of each input without its padding."""
    rows = np.ascontiguousarray(block.inputs)
    lengths = np.full(len(block), rows.shape[1]) if block.lengths is None else block.lengths
    digests = [
        hashlib.blake2b(row[:length].data, digest_size=16).digest() for row, length in zip(rows, lengths, strict=True)
    ]
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64).reshape(-1, 2)


def count_repeats(hashes: dict[str, zarr.Array]) -> dict[str, int]:
    """How many examples of a split have an input that train has too, or that comes earlier in the same split."""
    names = [name for name in hashes if name != "train"]
    counts = dict.fromkeys([*(f"{name} in train" for name in names), *(f"repeated in {name}" for name in hashes)], 0)
    passes = max(1, -(-max(array.shape[0] for array in hashes.values()) // HASHES_AT_ONCE))
    for part in range(passes):
        found = {name: _hashes(array, part, passes) for name, array in hashes.items()}
        for name in names:
            counts[f"{name} in train"] += int(np.isin(found[name], found["train"]).sum())
        for name, values in found.items():
            counts[f"repeated in {name}"] += len(values) - len(np.unique(values))
    return counts


def _hashes(array: zarr.Array, part: int, passes: int) -> np.ndarray:
    """The hashes that belong to pass `part`, as one 16-byte value each."""
    blocks = [block[block[:, 0] % np.uint64(passes) == part] for block in _blocks(array)]
    together = np.concatenate(blocks) if blocks else np.empty((0, 2), np.uint64)
    return np.ascontiguousarray(together).view("S16").ravel()


def _blocks(array: zarr.Array) -> Iterator[np.ndarray]:
    rows = array.shards[0] if array.shards else array.chunks[0]
    for start in range(0, array.shape[0], rows):
        yield np.asarray(array[start : start + rows])
