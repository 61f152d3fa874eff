from __future__ import annotations

from dataclasses import dataclass

import pytest

from pipeline.comparison.statistics import difference, difference_from
from pipeline.tasks.scoring import wilson_interval


@dataclass(frozen=True)
class Share:
    score: float
    low: float
    high: float

    @classmethod
    def of(cls, right: int, answers: int) -> Share:
        return cls(right / answers, *wilson_interval(right / answers, answers))


def test_the_interval_of_a_difference_is_newcombes():
    """56 of 70 against 48 of 80, method 10: 0.0524 to 0.3339 (Newcombe 1998, table II, contrast a)."""
    found = difference(Share.of(56, 70), Share.of(48, 80))
    assert found == pytest.approx((0.0524, 0.2, 0.3339), abs=1e-4)


def test_a_published_value_counts_as_exact():
    assert difference_from(0.5, Share(0.6, 0.55, 0.64)) == pytest.approx((0.05, 0.1, 0.14))
