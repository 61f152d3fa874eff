"""How sure a share is, and a difference of two."""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable


@runtime_checkable
class Share(Protocol):
    """An accuracy with the ends of its 95 % interval."""

    @property
    def accuracy(self) -> float:
        """The share itself."""
        ...

    @property
    def low(self) -> float:
        """The lower end."""
        ...

    @property
    def high(self) -> float:
        """The upper end."""
        ...


def wilson_interval(accuracy: float, answers: int) -> tuple[float, float]:
    """The 95 % interval of a share, by Wilson's score (1927); answers count as independent."""
    z = 1.959963984540054
    center = accuracy + z * z / (2 * answers)
    spread = z * math.sqrt(accuracy * (1 - accuracy) / answers + z * z / (4 * answers * answers))
    scale = 1 + z * z / answers
    return (center - spread) / scale, (center + spread) / scale


def difference(one: Share, other: Share) -> tuple[float, float, float]:
    """One share less another with its 95 % interval: low, difference, high.

    Newcombe's method 10 (1998), from both Wilson intervals. It takes the two as measured on different examples; on the
    same test split, where errors agree in part, the interval is wider than it need be.
    """
    middle = one.accuracy - other.accuracy
    low = middle - math.hypot(one.accuracy - one.low, other.high - other.accuracy)
    high = middle + math.hypot(one.high - one.accuracy, other.accuracy - other.low)
    return low, middle, high


def difference_from(published: float, measured: Share) -> tuple[float, float, float]:
    """A measured share less a published one, whose uncertainty nobody printed: low, difference, high."""
    return measured.low - published, measured.accuracy - published, measured.high - published
