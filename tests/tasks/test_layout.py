import pytest

from pipeline.tasks.layout import CHUNK_BYTES, MOST_SHARDS, SHARD_BYTES, plan


@pytest.mark.parametrize("examples", [0, 1, 2, 1000, 10_000, 1_000_000, 100_000_000])
@pytest.mark.parametrize("row_bytes", [1, 10, 3072, 6000, 3 * CHUNK_BYTES])
def test_shards_are_whole_chunks_within_bounds_and_few(examples: int, row_bytes: int) -> None:
    layout = plan(examples, row_bytes)
    assert layout.chunk >= 1
    assert layout.shard % layout.chunk == 0
    assert layout.chunk * row_bytes <= max(CHUNK_BYTES, row_bytes)
    shards = -(-examples // layout.shard)
    assert shards <= MOST_SHARDS
    if examples * row_bytes <= MOST_SHARDS * SHARD_BYTES // 2:
        assert layout.shard * row_bytes <= max(SHARD_BYTES, row_bytes)
