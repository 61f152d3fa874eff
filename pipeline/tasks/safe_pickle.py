"""Unpickles plain data and nothing else.

A pickle is a program: it can name any function and call it. CIFAR-10's batches and TAPE's LMDB values are pickles, so
they are read by an unpickler that knows containers, numbers, strings, bytes and numpy arrays of numbers, and refuses
any other name before anything is called.
"""

from __future__ import annotations

import io
import pickle
import re
from typing import Any

import numpy as np

LEAVES = (np.ndarray, np.generic, str, bytes, bytearray, bool, int, float, complex)


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


class _Dtype:
    """Stands in for numpy's dtype while a pickle is read: numbers and fixed strings, never objects or records."""

    def __init__(self, code: str, align: bool = False, copy: bool = True) -> None:
        if not isinstance(code, str) or not re.fullmatch(r"[<>|=]?[?biufcSU]\d{0,6}", code):
            raise RefusedPickle(f"it holds an array of dtype {code!r}")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])


class _Array(np.ndarray):
    """An array that takes nothing from a pickle but its shape, a checked dtype, and as many bytes as they need.

    numpy's own way trusts the state that it is given: a dtype's flags, for one, which say whether bytes are pointers.
    """

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, content = state
        if not isinstance(dtype, _Dtype) or not isinstance(content, str | bytes):
            raise RefusedPickle("it holds an array that is not plain bytes")
        raw = content.encode("latin1") if isinstance(content, str) else content  # Python 2 had one type for both
        checked = np.frombuffer(raw, dtype.dtype).reshape(shape, order="F" if fortran else "C")
        super().__setstate__((1, checked.shape, checked.dtype, bool(fortran), raw))  # pyright: ignore[reportArgumentType]


ARRAY_TYPE = "numpy.ndarray"  # a pickle names the type only to hand it to `_empty_array`, so it need not be callable


def _empty_array(kind: str, shape: tuple[int, ...], typecode: bytes) -> _Array:
    return np.empty(0, np.uint8).view(_Array)


def _array_of(content: bytes | bytearray, dtype: _Dtype, shape: tuple[int, ...], order: str) -> np.ndarray:
    return np.frombuffer(content, dtype.dtype).reshape(shape, order="F" if order == "F" else "C")


def _scalar(dtype: _Dtype, content: bytes) -> np.generic:
    return np.frombuffer(content, dtype.dtype)[0]


def _allowed() -> dict[tuple[str, str], Any]:
    """The only names a pickle may use; numpy's module was called numpy.core before it became numpy._core."""
    names: dict[tuple[str, str], Any] = {
        ("numpy", "ndarray"): ARRAY_TYPE,
        ("numpy", "dtype"): _Dtype,
        ("_codecs", "encode"): _latin1_bytes,
    }
    for builtins in ("builtins", "__builtin__"):  # the latter in protocols 0 to 2
        names |= {(builtins, "set"): set, (builtins, "frozenset"): frozenset, (builtins, "bytes"): _empty_bytes}
    for core in ("numpy.core", "numpy._core"):
        names[f"{core}.multiarray", "_reconstruct"] = _empty_array
        names[f"{core}.multiarray", "scalar"] = _scalar
        names[f"{core}.numeric", "_frombuffer"] = _array_of
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
    """Refuse a function or a type that was named and left uncalled."""
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
        elif not isinstance(
            item, np.ndarray | np.generic | str | bytes | bytearray | int | float | complex | bool | None
        ):
            raise RefusedPickle(f"it holds a {type(item).__name__}, which is not plain data")
