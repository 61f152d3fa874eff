"""Labels as they came, as what is stored: class numbers, with the mapping kept, or the targets of a regression."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Int64

from pipeline.tasks.faults import BrokenSource

MOST_CLASSES = 2**16
LARGEST = float(np.finfo(np.float32).max)

LabelKind = Literal["classes", "numbers"]
"""What the labels of a task of your own are: names of classes, or the numbers that a regression is to find."""
AS_NUMBERS = "set labels: numbers in the task's entry to make it a regression"


@dataclass(frozen=True)
class LabelSpace:
    """All labels of a task once each was seen: 0 `classes` where they are numbers, which need no names and no `order`.

    `names` are the labels by class number, `order` the class number of each code; `dtype` is the one to store.
    """

    classes: int
    dtype: Any
    names: list[int] | list[str] | None = None
    order: Int64[np.ndarray, " code"] | None = None


class LabelCodes:
    """Gives each label a code in order of appearance; `space` turns codes into class numbers once all were seen."""

    dtype = np.int32

    def __init__(self, path: Path) -> None:
        self.path = path
        self._codes: dict[str, int] = {}

    def code(self, label: int | str | float) -> int:
        """The label's code, a new one where it is new; 1 and "1" are one label.

        Raises:
            BrokenSource: there are more than 65536 labels.
        """
        code = self._codes.setdefault(str(label), len(self._codes))
        if code >= MOST_CLASSES:
            why = f"{self.path} has more than {MOST_CLASSES} different labels: these are not classes"
            raise BrokenSource(why, mend=AS_NUMBERS)
        return code

    def space(self) -> LabelSpace:
        """The labels that were seen.

        Labels that are all whole numbers are ordered by value, others by alphabet. Without any there is one class.
        """
        labels = list(self._codes)
        try:
            keys: list[int] | list[str] = [int(label) for label in labels]
        except ValueError:
            keys = labels
        if len({*keys}) < len(labels):  # "1" and "01"
            keys = labels
        ranked = sorted(range(len(keys)), key=keys.__getitem__)
        order = np.empty(len(keys), np.int64)
        order[ranked] = np.arange(len(keys))
        names: Any = [keys[code] for code in ranked]
        return LabelSpace(max(1, len(names)), smallest_dtype(len(names)), names, order)


class LabelNumbers:
    """Labels that are the targets of a regression: each is its own code."""

    dtype = np.float32

    def code(self, label: int | str | float) -> float:
        """The label itself, which `number` has read."""
        return float(label)

    def space(self) -> LabelSpace:
        """Numbers have no classes."""
        return LabelSpace(0, np.float32)


Coder = LabelCodes | LabelNumbers
"""What turns labels as they came into what is stored."""


def coder(kind: LabelKind, path: Path) -> Coder:
    """The coder of labels of a kind; `path` is for error messages."""
    return LabelCodes(path) if kind == "classes" else LabelNumbers()


def number(value: Any) -> float:
    """A label as the number that it is, or that its text says.

    Raises:
        ValueError: it is no number, or one that is not finite in float32.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"label {value!r} is not a number")
    try:
        found = float(value)
    except (ValueError, OverflowError):
        raise ValueError(f"label {value!r} is not a number") from None
    if not abs(found) <= LARGEST:  # also NaN
        raise ValueError(f"label {value!r} is not finite in float32")
    return found


def smallest_dtype(count: int) -> type[np.unsignedinteger]:
    """The smallest dtype that holds the numbers below `count`: of classes, or of ids."""
    return np.uint8 if count <= 2**8 else np.uint16 if count <= 2**16 else np.uint32
