from __future__ import annotations

import math

import pytest

from pipeline.costs.amortised import amortised, break_even, dollars


def test_a_cache_is_shared_out_among_its_probes():
    assert amortised(cache=60.0, probe=2.0, probes=1) == 62
    assert amortised(cache=60.0, probe=2.0, probes=30) == 4
    with pytest.raises(ValueError, match="at least one probe, not 0"):
        amortised(60.0, 2.0, 0)


def test_at_the_break_even_both_ways_cost_the_same():
    count = break_even(cache=60.0, one_on_cache=2.0, one_without=5.0)
    assert 60 + count * 2 == count * 5
    assert break_even(60.0, 5.0, 5.0) == math.inf


def test_a_price_is_for_an_hour():
    assert dollars(seconds=1800.0, price_per_hour=3.0) == 1.5
