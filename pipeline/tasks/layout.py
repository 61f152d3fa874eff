"""How a split's arrays are cut into chunks and shards on disk."""

from __future__ import annotations

from dataclasses import dataclass

CHUNK_BYTES = 2**20
SHARD_BYTES = 16 * 2**20
MOST_SHARDS = 256


@dataclass(frozen=True)
class Layout:
    """Rows of a chunk, and of a shard, which is one file and a whole number of chunks."""

    chunk: int
    shard: int


def plan(examples: int, row_bytes: int) -> Layout:
    """The layout of a split whose widest array has `row_bytes` a row; all its arrays share it.

    Chunks of about 1 MiB, shards of about 16 MiB; from 4 GiB on shards grow, so that there are never more than 256
    files for an array: `prepare` holds one shard in memory.
    """
    chunk = max(1, min(CHUNK_BYTES // max(1, row_bytes), max(1, examples)))
    chunks = -(-max(1, examples) // chunk)
    per_shard = max(1, SHARD_BYTES // (chunk * max(1, row_bytes)), -(-chunks // MOST_SHARDS))
    return Layout(chunk, chunk * min(per_shard, chunks))
