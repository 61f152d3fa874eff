"""What will be computed, decided before anything is: distinct inputs, shards, batches. Pure functions."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int32, Int64, UInt64


def distinct_rows(
    hashes: dict[str, UInt64[np.ndarray, "example 2"]],
) -> tuple[Int64[np.ndarray, " row"], dict[str, Int64[np.ndarray, " example"]]]:
    """Find equal inputs by their content hash, so that each is run and stored once.

    Args:
        hashes: 128 bits for each example of each split.

    Returns:
        Where each row's input stands first, as an index into the splits laid end to end, in order of appearance; and
        per split the row of each example.
    """
    together = np.concatenate([*hashes.values(), np.empty((0, 2), np.uint64)])
    order = np.lexsort(together.T)  # stable: equal inputs stand together, the first of them first
    new = np.ones(len(order), bool)
    new[1:] = (together[order[1:]] != together[order[:-1]]).any(axis=1)
    del together
    is_first = np.zeros(len(order), bool)
    is_first[order[new]] = True
    row_of = np.cumsum(is_first) - 1  # right for first ones; the others take the row of theirs
    row_of[order] = row_of[order[new]][np.cumsum(new) - 1]
    ends = np.cumsum([len(part) for part in hashes.values()])
    return np.flatnonzero(is_first), dict(zip(hashes, np.split(row_of, ends[:-1]), strict=True))


def batches(lengths: Int32[np.ndarray, " row"], batch_tokens: int) -> list[Int64[np.ndarray, " picked"]]:
    """Rows in batches of at most `batch_tokens` tokens, padding included (but at least one row).

    The longest come first, so that rows of a batch are nearly equally long, and memory is at its most in the first
    batch. Rows of equal length stay in order. Which rows meet depends on the lengths alone.
    """
    order = np.argsort(-lengths, kind="stable")
    found: list[np.ndarray] = []
    start = 0
    while start < len(order):
        longest = max(1, int(lengths[order[start]]))
        stop = start + max(1, batch_tokens // longest)
        found.append(order[start:stop])
        start = stop
    return found
