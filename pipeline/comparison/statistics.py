"""How sure a share is, and a difference of two scores."""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable


@runtime_checkable
class Measured(Protocol):
    """A score with the ends of its 95 % interval."""

    @property
    def score(self) -> float:
        """The score itself."""
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


def difference(one: Measured, other: Measured) -> tuple[float, float, float]:
    """One score less another with its 95 % interval: low, difference, high.

    Newcombe's method 10 (1998), from both Wilson intervals; of R² from both bootstrap intervals, as Zou and Donner
    (2008) carry it over. It takes the two as measured on different examples; on the
    same test split, where errors agree in part, the interval is wider than it need be.
    """
    middle = one.score - other.score
    low = middle - math.hypot(one.score - one.low, other.high - other.score)
    high = middle + math.hypot(one.high - one.score, other.score - other.low)
    return low, middle, high


def difference_from(published: float, measured: Measured) -> tuple[float, float, float]:
    """A measured score less a published one, whose uncertainty nobody printed: low, difference, high."""
    return measured.low - published, measured.score - published, measured.high - published
