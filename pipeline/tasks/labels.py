"""Labels of any kind as class numbers, with the mapping kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from jaxtyping import Int64

from pipeline.tasks.faults import BrokenSource

MOST_CLASSES = 2**16


class LabelCodes:
    """Gives each label a code in order of appearance; `mapping` turns codes into class numbers once all were seen."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._codes: dict[str, int] = {}

    def code(self, label: int | str) -> int:
        """The label's code, a new one where it is new; 1 and "1" are one label.

        Raises:
            BrokenSource: there are more than 65536 labels.
        """
        code = self._codes.setdefault(str(label), len(self._codes))
        if code >= MOST_CLASSES:
            raise BrokenSource(f"{self.path} has more than {MOST_CLASSES} different labels: these are not classes")
        return code

    def mapping(self) -> tuple[list[int] | list[str], Int64[np.ndarray, " code"]]:
        """The labels by class number, and the class number of each code.

        Labels that are all whole numbers are ordered by value, others by alphabet.
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
        return [keys[code] for code in ranked], order  # pyright: ignore[reportReturnType]


def smallest_dtype(count: int) -> type[np.unsignedinteger]:
    """The smallest dtype that holds the numbers below `count`: of classes, or of ids."""
    return np.uint8 if count <= 2**8 else np.uint16 if count <= 2**16 else np.uint32
