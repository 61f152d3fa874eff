"""Unpickles plain data and nothing else.

A pickle is a program: it can name any function and call it. CIFAR-10's batches and TAPE's LMDB values are pickles, so
they are read by an unpickler that knows containers, numbers, strings, bytes and numpy arrays, and refuses any other
name before anything is called.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np


class RefusedPickle(ValueError):
    """A pickle that names something else than plain data, or is no pickle at all."""


def plain_data(content: bytes) -> Any:
    """The value in a pickle of plain data. Strings of Python 2 are read as latin-1.

    Raises:
        RefusedPickle: it holds anything else (nothing of it has run then), or it is damaged.
    """
    try:
        value = _PlainUnpickler(io.BytesIO(content), encoding="latin1").load()
    except RefusedPickle:
        raise
    except Exception as error:  # a damaged pickle can fail in any way
        raise RefusedPickle(f"not a readable pickle ({type(error).__name__}: {error})") from error
    _require_plain(value)
    return value


def _latin1_bytes(text: str, encoding: str) -> bytes:
    """What protocol 2 calls to make bytes; the codec is not the pickle's to choose."""
    if encoding != "latin1":
        raise RefusedPickle(f"bytes in encoding {encoding!r}")
    return text.encode("latin1")


def _empty_bytes() -> bytes:
    """What protocol 2 calls to make bytes of length 0."""
    return b""


def _allowed() -> dict[tuple[str, str], Callable[..., Any]]:
    """The only names a pickle may use; numpy's module was called numpy.core before it became numpy._core."""
    rebuild, scalar = np.empty(0).__reduce__()[0], np.float64(0).__reduce__()[0]
    frombuffer = np.empty(1).__reduce_ex__(5)[0]
    names: dict[tuple[str, str], Callable[..., Any]] = {
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("_codecs", "encode"): _latin1_bytes,
    }
    for builtins in ("builtins", "__builtin__"):  # the latter in protocols 0 to 2
        names |= {(builtins, "set"): set, (builtins, "frozenset"): frozenset, (builtins, "bytes"): _empty_bytes}
    for core in ("numpy.core", "numpy._core"):
        names[f"{core}.multiarray", "_reconstruct"] = rebuild  # pyright: ignore[reportArgumentType]
        names[f"{core}.multiarray", "scalar"] = scalar  # pyright: ignore[reportArgumentType]
        names[f"{core}.numeric", "_frombuffer"] = frombuffer  # pyright: ignore[reportArgumentType]
    return names


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        allowed = _allowed()
        if (module, name) not in allowed:
            raise RefusedPickle(f"it names {module}.{name}, which is not plain data; nothing of it was run")
        return allowed[module, name]

    def persistent_load(self, pid: Any) -> Any:
        raise RefusedPickle("it refers to an object outside itself")


def _require_plain(value: Any) -> None:
    """Refuse arrays of objects and stray functions or types."""
    waiting, seen = [value], set[int]()
    while waiting:
        item = waiting.pop()
        if id(item) in seen:  # a container may hold itself
            continue
        seen.add(id(item))
        if isinstance(item, dict):
            waiting += [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple | set | frozenset):
            waiting += item
        elif isinstance(item, np.ndarray | np.generic):
            if item.dtype.hasobject:
                raise RefusedPickle("it holds an array of Python objects")
        elif not isinstance(item, str | bytes | bytearray | int | float | complex | bool | None):
            raise RefusedPickle(f"it holds a {type(item).__name__}, which is not plain data")
