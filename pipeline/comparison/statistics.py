"""How sure a difference of two scores is."""

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


def difference(one: Measured, other: Measured) -> tuple[float, float, float]:
    """One score less another with its 95 % interval: low, difference, high.

    Newcombe's method 10 (1998), from the intervals of both, whatever made them, as Zou and Donner (2008) carry it over.
    It takes the two as measured on different examples; on the same test split, where errors agree in part, the interval
    is wider than it need be.
    """
    middle = one.score - other.score
    low = middle - math.hypot(one.score - one.low, other.high - other.score)
    high = middle + math.hypot(one.high - one.score, other.score - other.low)
    return low, middle, high


def difference_from(published: float, measured: Measured) -> tuple[float, float, float]:
    """A measured score less a published one, whose uncertainty nobody printed: low, difference, high."""
    return measured.low - published, measured.score - published, measured.high - published
