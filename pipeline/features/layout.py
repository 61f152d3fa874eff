"""How features are cut into shards (one file, one unit of work) and chunks (what a reader must read at least)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pipeline.features.dtypes import ON_DISK, StorageDtype

MAX_SHARDS = 256
"""A tool that tracks files slows down with their number, so shards grow with the data beyond this many."""


@dataclass(frozen=True)
class Layout:
    """The array `features` of shape `(row, readout, layer, width)`; a row is a distinct input.

    `shard_rows` is a multiple of `chunk_rows`; the last shard may be shorter.
    """

    rows: int
    readout: int
    layers: tuple[str, ...]
    width: int
    dtype: StorageDtype
    shard_rows: int
    chunk_rows: int

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """`(row, readout, layer, width)`."""
        return self.rows, self.readout, len(self.layers), self.width

    @property
    def bytes(self) -> int:
        """Size of the features before compression."""
        return math.prod(self.shape) * np.dtype(ON_DISK[self.dtype]).itemsize

    @property
    def shards(self) -> int:
        """Number of shards."""
        return math.ceil(self.rows / self.shard_rows)

    def rows_of(self, shard: int) -> range:
        """The rows that a shard holds."""
        return range(shard * self.shard_rows, min((shard + 1) * self.shard_rows, self.rows))

    def file_of(self, shard: int) -> str:
        """The shard's file, relative to the store."""
        return f"features/c/{shard}/0/0/0"


def plan_layout(
    rows: int,
    readout: int,
    layers: tuple[str, ...],
    width: int,
    dtype: StorageDtype,
    shard_bytes: int,
    chunk_bytes: int,
) -> Layout:
    """The layout whose shards and chunks come nearest to the wanted sizes from below, within `MAX_SHARDS`."""
    row_bytes = readout * len(layers) * width * np.dtype(ON_DISK[dtype]).itemsize
    chunk_rows = max(1, min(chunk_bytes // row_bytes, max(rows, 1)))
    wanted = max(shard_bytes // row_bytes, math.ceil(rows / MAX_SHARDS))
    shard_rows = max(1, min(math.ceil(wanted / chunk_rows), math.ceil(max(rows, 1) / chunk_rows))) * chunk_rows
    return Layout(rows, readout, layers, width, dtype, shard_rows, chunk_rows)
