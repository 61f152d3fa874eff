"""Random numbers that are a function of (seed, stream, row) and of nothing else.

A counter-based generator (Philox: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) gives row i its
own words without drawing those of the rows before it. Only raw 64-bit words are used: numpy promises that they stay
what they are, which it does not promise of its distributions.
"""

from __future__ import annotations

import hashlib

import numpy as np
from jaxtyping import Float64, Int64, Integer, UInt64

COUNTER_WORDS = 4  # words that Philox makes of one counter


def stream(seed: int, name: str, counter: int = 0) -> np.random.Philox:
    """The generator of the stream `name`, standing at `counter`; streams of other names or seeds are unrelated."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return np.random.Philox(key=int.from_bytes(digest[:16], "little"), counter=counter)


def words(seed: int, name: str, rows: Integer[np.ndarray, " row"], count: int) -> UInt64[np.ndarray, "row word"]:
    """`count` random 64-bit words for each of `rows`, whatever rows are drawn with them."""
    counters = -(-count // COUNTER_WORDS)
    out = np.empty((len(rows), count), np.uint64)
    breaks = np.flatnonzero(np.diff(rows) != 1) + 1
    for start, stop in zip([0, *breaks], [*breaks, len(rows)], strict=True):
        if stop > start:
            generator = stream(seed, name, int(rows[start]) * counters)
            drawn = generator.random_raw((stop - start) * counters * COUNTER_WORDS)
            out[start:stop] = drawn.reshape(stop - start, -1)[:, :count]
    return out


def unit(drawn: UInt64[np.ndarray, "*shape"]) -> Float64[np.ndarray, "*shape"]:
    """Words as numbers in [0, 1)."""
    return (drawn >> np.uint64(11)) * 2.0**-53


def below(drawn: UInt64[np.ndarray, "*shape"], bound: int) -> Int64[np.ndarray, "*shape"]:
    """Words as integers in [0, bound); the bias is below bound / 2**53."""
    return (unit(drawn) * bound).astype(np.int64)


def permutation(seed: int, name: str, count: int) -> Int64[np.ndarray, " row"]:
    """The numbers below `count` in random order."""
    return np.argsort(stream(seed, name).random_raw(count), kind="stable")


def parts(seed: int, rows: Integer[np.ndarray, " row"], validation: float, test: float) -> Int64[np.ndarray, " row"]:
    """Which split each row goes to: 0 train, 1 validation, 2 test, each row decided alone.

    The shares are met on average, not exactly: that is what lets a file of any length be split in one pass.
    """
    drawn = unit(words(seed, "parts", rows, 1))[:, 0]
    return np.where(drawn < test, 2, np.where(drawn < test + validation, 1, 0))
