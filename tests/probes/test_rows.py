from __future__ import annotations

import numpy as np
import pytest

from pipeline.probes import rows as module
from pipeline.probes.rows import Rows, Standardisation
from tests.probes.stores import three_splits, write_store


@pytest.fixture
def store(tmp_path, monkeypatch):
    """Two layers, seven rows in a block."""
    monkeypatch.setattr(module, "BLOCK_BYTES", 7 * 4 * 2 * 8)
    return write_store(tmp_path / "t-b", three_splits(40, layers=2), 3, layers=("1", "final"))


@pytest.mark.parametrize("memory", [0, 1 << 20])
@pytest.mark.parametrize("examples", [None, np.array([0, 3, 4, 17, 39])])
def test_every_row_comes_once_and_in_order_on_every_pass(store, memory, examples):
    rows = Rows(store, "train", memory, examples)
    wanted = store.read("train", examples)[:, 0]
    for _ in range(2):
        blocks = list(rows)
        assert max(len(block.x) for block in blocks) <= 7
        np.testing.assert_array_equal(np.concatenate([block.x for block in blocks]), wanted)
        np.testing.assert_array_equal(np.concatenate([block.labels for block in blocks]), rows.labels)
    np.testing.assert_array_equal(np.concatenate([block.x for block in rows.layer("final")]), wanted[:, 1])


def test_beyond_the_memory_rows_are_read_again_and_standardised_the_same(store, monkeypatch):
    reads = []
    read = type(store).read
    monkeypatch.setattr(type(store), "read", lambda self, *a: reads.append(a) or read(self, *a))
    kept, streamed = Rows(store, "train", 40 * 4 * 16), Rows(store, "train", 40 * 4 * 16 - 1)
    scale = Standardisation.of(np.full((2, 8), 3.0), np.full((2, 8), 2.0))
    for rows, passes in ((kept, 1), (streamed, 3)):
        reads.clear()
        list(rows)
        rows.standardise(scale)
        list(rows)
        list(rows)
        assert len(reads) == 6 * passes
    for one, other in zip(kept, streamed, strict=True):
        np.testing.assert_array_equal(one.x, other.x)


def test_readout_positions_are_rows_that_share_out_the_answers(tmp_path):
    x = np.arange(4 * 2 * 1 * 3, dtype=np.float32).reshape(4, 2, 1, 3)
    labels = np.arange(16).reshape(4, 4) % 2
    store = write_store(tmp_path / "s", {"train": (x, labels), "validation": (x, labels), "test": (x, labels)}, 2)
    (block,) = Rows(store, "train")
    np.testing.assert_array_equal(block.x[3, 0], x[1, 1, 0])
    np.testing.assert_array_equal(block.labels[3], labels[1, 2:])


def test_an_empty_split_has_no_blocks(tmp_path):
    splits = three_splits(30)
    splits["train"] = (splits["train"][0][:0], splits["train"][1][:0])
    store = write_store(tmp_path / "s", splits, 3)
    assert list(Rows(store, "train")) == []
