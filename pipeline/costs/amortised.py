"""What a cache is worth: cost of a probe when the cache is shared, and from how many probes or epochs on it pays.

Units are the caller's, the same for all arguments: seconds, FLOPs, joules or money.
"""

from __future__ import annotations

import math


def amortised(cache: float, probe: float, probes: int) -> float:
    """The cost of each of `probes` probes on one cache, its filling shared out among them.

    Raises:
        ValueError: there are no probes.
    """
    if probes < 1:
        raise ValueError(f"a cache is shared by at least one probe, not {probes}")
    return cache / probes + probe


def break_even(cache: float, one_on_cache: float, one_without: float) -> float:
    """After how many uses (probes, or epochs) the cache has paid for itself; infinite if each use costs no less."""
    saved = one_without - one_on_cache
    return cache / saved if saved > 0 else math.inf


def dollars(seconds: float, price_per_hour: float) -> float:
    """What the time costs at a price that the user gives; there is no price of ours."""
    return seconds / 3600 * price_per_hour
