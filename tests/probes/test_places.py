"""The same numbers in other places: moments summed up by workers, products on a torch device."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits

from pipeline.errors import PermafrostError
from pipeline.probes import layer_moments as module
from pipeline.probes import moments as moments_module
from pipeline.probes import rows as rows_module
from pipeline.probes.layer_moments import distributed_moments, layer_moments, sum_piece
from pipeline.probes.probe import Where, run_probe
from pipeline.probes.rows import Rows
from stages.probe import torch_device
from tests.probes.stores import three_splits, write_store
from tests.probes.test_probe import SETTINGS

LAYERS = ("1", "final")


@pytest.fixture
def store(tmp_path, monkeypatch):
    """Two layers, train in 8 blocks of at most 40 rows."""
    monkeypatch.setattr(rows_module, "BLOCK_BYTES", 40 * 4 * 2 * 8)
    return write_store(tmp_path / "s", three_splits(layers=2), 3, LAYERS)


def equal_bytes(found, wanted):
    for layer in wanted:
        for name, values in vars(wanted[layer]).items():
            assert vars(found[layer])[name].tobytes() == values.tobytes(), (layer, name)


def test_pieces_that_come_in_any_order_add_up_to_the_same_bytes(store, monkeypatch):
    for one in (module, moments_module):
        monkeypatch.setattr(one, "PIECE_BLOCKS", 3)
    rows = Rows(store, "train")
    rows.class_weights = np.array([1, 2, 3], np.float32)
    asked = []

    def backwards(function, pieces, *_):
        asked.extend(pieces)
        yield from ((piece, function(piece)) for piece in reversed(pieces))

    monkeypatch.setattr(module, "run", backwards)
    equal_bytes(distributed_moments(rows, 1, "local:2"), layer_moments(rows))
    assert asked == [0, 1, 2]


def test_a_single_piece_needs_no_workers(store, monkeypatch):
    monkeypatch.setattr(module, "run", lambda *_: pytest.fail("started workers"))
    rows = Rows(store, "train")
    equal_bytes(distributed_moments(rows, 1, "local:2"), layer_moments(rows))
    with pytest.raises(PermafrostError, match="'bogus' is no scheduler"):
        distributed_moments(rows, 1, "bogus")


def test_the_processor_is_numpy_and_a_device_that_is_not_here_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert torch_device("cpu") is torch_device("auto") is None
    with pytest.raises(PermafrostError, match="'cuda' is not here"):
        torch_device("cuda")


@pytest.mark.slow
def test_two_dask_workers_give_the_bytes_of_one_process(tmp_path):
    """Train is 300 MB in float32: more than one piece as they are, of 16 blocks of 16 MiB."""
    width, rows = 256, 300_000
    generator = np.random.default_rng(0)
    x = generator.standard_normal((rows, 1, 1, width), dtype=np.float32)
    labels = generator.integers(0, 3, (rows, 1))
    few = (x[:60], labels[:60])
    splits = {"train": (x, labels), "validation": few, "test": few}
    store = write_store(tmp_path / "s", splits, 3, shard_bytes=1 << 24)
    rows = Rows(store, "train")
    with threadpool_limits(1):  # as the stage does: on some chips the threads of a product change its low bits
        equal_bytes(distributed_moments(rows, 1, "local:2"), layer_moments(rows))


def test_a_piece_is_small_when_it_travels(store):
    import pickle

    rows = Rows(store, "train")
    job = module.PieceJob(store.path, module.first_rows(rows), None, None, 1)
    assert len(pickle.dumps((sum_piece, job))) < 10_000


@pytest.mark.parametrize("memory", [0, 1 << 20])
def test_torch_tensors_give_the_numbers_of_numpy(store, memory):
    wanted, _ = run_probe(store, SETTINGS, "k")
    found, cost = run_probe(store, SETTINGS, "k", Where(memory, device="cpu"))
    assert cost.device == "cpu"
    for method in ("ridge", "knn", "sgd"):
        one, other = found["methods"][method], wanted["methods"][method]
        assert one["test_accuracy"] == pytest.approx(other["test_accuracy"], abs=0.011), method
    assert found["penalty"] == wanted["penalty"]
    assert found["test_loss"] == pytest.approx(wanted["test_loss"], abs=1e-4)
    for ours, theirs in zip(found["path"], wanted["path"], strict=True):
        assert ours["validation_loss"] == pytest.approx(theirs["validation_loss"], abs=1e-4)
