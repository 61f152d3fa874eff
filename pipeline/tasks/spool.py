"""Examples of unequal length on disk, for tasks that learn how many and how long they are only by reading them all.

A spool is scratch: flat files in the work folder, appended to in one pass, then read back in any stretch. It is what
keeps the memory of `prepare` independent of the number of examples.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int32, Int64, Integer, Num, UInt8

from pipeline.tasks.task import SPLITS, Block, Split

FIELDS = ("inputs", "ends", "labels", "flags")


class Spool:
    """Examples of any length: `append` them, then make a `split` of them. Labels are codes, or numbers in float32.

    Each example is a stretch of tokens, a token being one id or `features` numbers. `ends` holds, for each example,
    the number of tokens up to and with it.
    """

    def __init__(
        self,
        folder: Path,
        dtype: Any,
        features: tuple[int, ...] = (),
        answers: int = 1,
        label_dtype: type[np.int32 | np.float32] = np.int32,
    ) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.dtype = np.dtype(dtype)
        self.features = features
        self.answers = answers
        self.label_dtype = label_dtype
        self.examples = 0
        self.longest = 0
        self._tokens = 0
        for name in FIELDS:
            (folder / name).touch()

    def append(
        self,
        tokens: Num[np.ndarray, "token ..."],
        lengths: Integer[np.ndarray, " example"],
        labels: Num[np.ndarray, "example answer"],
        flags: UInt8[np.ndarray, " example"] | None = None,
    ) -> None:
        """Add examples: their tokens one after the other, and how many each has."""
        if not len(lengths):
            return
        ends = self._tokens + np.cumsum(lengths, dtype=np.int64)
        flags = np.zeros(len(lengths), np.uint8) if flags is None else flags
        columns = (tokens.astype(self.dtype), ends, labels.astype(self.label_dtype), flags)
        for name, values in zip(FIELDS, columns, strict=True):
            with (self.folder / name).open("ab") as file:
                file.write(np.ascontiguousarray(values).data)
        self.examples += len(lengths)
        self.longest = max(self.longest, int(lengths.max()))
        self._tokens = int(ends[-1])

    def lengths(self) -> Int64[np.ndarray, " example"]:
        """How many tokens each example has."""
        return np.diff(self._ends(0, self.examples))

    def split(
        self, width: int, label_dtype: Any, order: np.ndarray | None = None, pad: int = 0, ragged: bool = True
    ) -> Split:
        """What was appended, as a split.

        Args:
            width: tokens that every example is padded to on the right.
            label_dtype: the dtype of the labels.
            order: for each label as appended, its class number; None where they are class numbers already, or
                numbers.
            pad: the value of the padding.
            ragged: false where pads count as tokens like others, so that all examples are equally long.
        """

        def read(start: int, stop: int) -> Block:
            ends = self._ends(start, stop)
            lengths = np.diff(ends).astype(np.int32)
            labels = self._read("labels", self.label_dtype, start * self.answers, (stop - start) * self.answers)
            named = labels if order is None or not len(labels) else order[labels]
            inputs = self._padded(int(ends[0]), lengths, width, pad)
            flags = self._read("flags", np.uint8, start, stop - start)
            answers = named.astype(label_dtype).reshape(-1, self.answers)
            return Block(inputs, answers, lengths if ragged else None, flags)

        return Split(self.examples, read)

    def _ends(self, start: int, stop: int) -> Int64[np.ndarray, " boundary"]:
        if start:
            return self._read("ends", np.int64, start - 1, stop - start + 1)
        return np.concatenate([np.zeros(1, np.int64), self._read("ends", np.int64, 0, stop)])

    def _padded(
        self, first: int, lengths: Int32[np.ndarray, " example"], width: int, pad: int
    ) -> Num[np.ndarray, "example token *feature"]:
        size = int(np.prod(self.features, dtype=np.int64))
        flat = self._read("inputs", self.dtype, first * size, int(lengths.sum()) * size)
        padded = np.full((len(lengths), width, *self.features), pad, self.dtype)
        padded[np.arange(width) < lengths[:, None]] = flat.reshape(-1, *self.features)
        return padded

    def _read(self, name: str, dtype: Any, first: int, count: int) -> np.ndarray:
        return np.fromfile(self.folder / name, dtype, count, offset=first * np.dtype(dtype).itemsize)


class Spools:
    """One spool for each split, filled in one pass over the source."""

    def __init__(
        self,
        work: Path,
        dtype: Any,
        features: tuple[int, ...] = (),
        answers: int = 1,
        label_dtype: type[np.int32 | np.float32] = np.int32,
    ) -> None:
        self.dtype = np.dtype(dtype)
        self.parts = [Spool(work / name, dtype, features, answers, label_dtype) for name in SPLITS]

    def append(
        self,
        part: Integer[np.ndarray, " example"],
        tokens: Num[np.ndarray, "token ..."],
        lengths: Integer[np.ndarray, " example"],
        labels: Num[np.ndarray, "example answer"],
        flags: UInt8[np.ndarray, " example"],
    ) -> None:
        """Add examples, each to the split that `part` says: 0 train, 1 validation, 2 test."""
        of_token = np.repeat(part, lengths)
        for number, spool in enumerate(self.parts):
            here = part == number
            spool.append(tokens[of_token == number], lengths[here], labels[here], flags[here])

    def splits(
        self, label_dtype: Any, order: np.ndarray | None = None, pad: int = 0, ragged: bool = True
    ) -> dict[str, Split]:
        """The three splits, padded to the longest example of them all; arguments as for `Spool.split`."""
        width = max(1, *(spool.longest for spool in self.parts))
        parts = zip(SPLITS, self.parts, strict=True)
        return {name: spool.split(width, label_dtype, order, pad, ragged) for name, spool in parts}
