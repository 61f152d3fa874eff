"""What will be computed, decided before anything is: distinct inputs, shards, batches. Pure functions."""

from __future__ import annotations

import hashlib

import numpy as np
from jaxtyping import Integer, Num

from pipeline.features.layout import Layout


def distinct_rows(
    splits: dict[str, Num[np.ndarray, "example token *feature"]],
) -> tuple[list[tuple[str, int]], dict[str, Integer[np.ndarray, "example"]]]:
    """Find equal inputs, so that each is run and stored once.

    Returns:
        Where each row's input stands first, as (split, example), in order of appearance; and per split the row of
        each example.
    """
    first: dict[bytes, int] = {}
    origins: list[tuple[str, int]] = []
    rows: dict[str, np.ndarray] = {}
    for name, inputs in splits.items():
        found = np.empty(len(inputs), dtype=np.int64)
        for example, values in enumerate(inputs):
            digest = hashlib.blake2b(values.tobytes(), digest_size=16).digest()
            if digest not in first:
                first[digest] = len(origins)
                origins.append((name, example))
            found[example] = first[digest]
        rows[name] = found
    return origins, rows


def batches(layout: Layout, shard: int, tokens: int, batch_tokens: int) -> list[range]:
    """The rows of a shard in batches of at most `batch_tokens` tokens (but at least one row), in order."""
    rows = layout.rows_of(shard)
    size = max(1, batch_tokens // tokens)
    return [range(start, min(start + size, rows.stop)) for start in range(rows.start, rows.stop, size)]
