from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from pipeline.extraction.engine import Where as ExtractWhere
from pipeline.extraction.engine import extract, plan_extraction
from pipeline.features import open_features
from pipeline.probes import rows as rows_module
from pipeline.probes.logistic import fit_path
from pipeline.probes.moments import MomentsFitter, targets
from pipeline.probes.probe import Where, run_probe
from pipeline.probes.ridge import Spectrum
from pipeline.probes.rows import ArrayRows, Standardisation
from pipeline.probes.settings import ProbeSettings
from pipeline.tasks.tokens import open_tokens
from tests.probes.stores import three_splits, write_store
from tests.tiny import backbone, cache_settings

SETTINGS = ProbeSettings(
    methods=("logistic", "ridge", "knn", "sgd"),
    penalties=(1.0, 0.1, 0.001),
    iterations=100,
    class_weights=None,
    neighbours=5,
    sgd_epochs=3,
    sgd_batch=16,
    lasso_penalty=0.01,
    lasso_iterations=30,
    lasso_shares=(0.1, 0.5),
    fractions=(0.1, 1.0),
    seed=0,
    threads=1,
)


NOTHING_CHOSEN = "nothing chosen: no validation examples"


@pytest.fixture(scope="module")
def store(tiny_tokens, tiny_bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("probe")
    plan = plan_extraction(open_tokens(tiny_tokens), backbone(tiny_bert), cache_settings(), {})
    extract(plan, folder / "xor-tiny", ExtractWhere(torch.device("cpu"), folder / "work"))
    return open_features(folder / "xor-tiny")


def test_the_penalty_is_chosen_on_validation_and_test_is_scored_with_it(store):
    metrics, cost = run_probe(store, SETTINGS, "xor-tiny")
    x = {split: store.read(split).reshape(-1, 32) for split in ("train", "validation", "test")}
    labels = {split: store.labels(split).reshape(-1, 1) for split in x}
    moments = MomentsFitter().update(x["train"], targets(labels["train"], 2)).result
    for part in x.values():
        Standardisation.of(moments.mean, moments.spread).apply(part)
    path = fit_path(ArrayRows(x["train"], labels["train"], 2), Spectrum.of(moments), SETTINGS.penalties, 100)

    def score(fit, split):
        return np.mean(fit.model.scores(x[split]).argmax(axis=2) == labels[split])

    best = max(score(fit, "validation") for fit in path)
    chosen = next(fit for fit in path if fit.penalty == metrics["penalty"])
    assert metrics["validation_accuracy"] == score(chosen, "validation") == best
    assert metrics["test_accuracy"] == score(chosen, "test")
    assert metrics["test_answers"] == len(labels["test"])
    assert metrics["trained_parameters"] == 32 * 2 + 2
    assert metrics["floors"] == {"majority class": 0.5}
    assert set(metrics["methods"]) == set(cost.methods) - {"logistic"} == {"ridge", "knn", "sgd"}
    assert cost.methods["logistic"].flops > cost.methods["ridge"].flops > 0
    assert cost.seconds_per_epoch < cost.methods["logistic"].seconds / metrics["epochs"]


def test_two_probes_are_equal(store):
    assert run_probe(store, SETTINGS, "k")[0] == run_probe(store, SETTINGS, "k")[0]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_streaming_gives_the_numbers_of_a_run_in_memory(tmp_path, monkeypatch, dtype):
    monkeypatch.setattr(rows_module, "BLOCK_BYTES", 64 * 4 * 2 * 8)
    store = write_store(tmp_path / "s", three_splits(layers=2), 3, ("1", "final"), dtype)
    assert run_probe(store, SETTINGS, "k", Where(memory_bytes=0))[0] == run_probe(store, SETTINGS, "k")[0]


def test_every_layer_is_probed_and_the_best_on_validation_is_reported(tmp_path):
    splits = three_splits(layers=3, apart=0.0)
    for name, informed in three_splits(layers=3).items():
        splits[name][0][:, :, 1], splits[name][1][:] = informed[0][:, :, 1], informed[1]
    metrics, _ = run_probe(write_store(tmp_path / "s", splits, 3, ("0", "1", "2")), SETTINGS, "k")
    assert metrics["layer"] == "1"
    assert list(metrics["layers"]) == ["0", "1", "2"]
    for method in SETTINGS.methods[:3]:
        found = {layer: one[method]["test_accuracy"] for layer, one in metrics["layers"].items()}
        assert found["1"] > 0.7 > 0.55 > max(found["0"], found["2"]), method


def test_the_learning_curve_climbs_and_ends_in_the_result(tmp_path):
    settings = dataclasses.replace(SETTINGS, fractions=(0.01, 0.1, 1.0))
    metrics, _ = run_probe(write_store(tmp_path / "s", three_splits(600, classes=2), 2), settings, "k")
    curve = metrics["learning_curve"]
    assert [point["examples"] for point in curve] == [6, 60, 600]
    assert curve[-1]["test_accuracy"] == metrics["test_accuracy"] >= curve[0]["test_accuracy"]
    low, high = metrics["test_interval"]
    assert low < metrics["test_accuracy"] < high


def change(splits, name, edit):
    x, labels = splits[name]
    splits[name] = edit(x.copy(), labels.copy())


EDGES = {
    "one class": (lambda x, y: (x, y * 0), "skipped: single class"),
    "no rows": (lambda x, y: (x[:0], y[:0]), "skipped: no training rows"),
    "a class of one member": (lambda x, y: (x, np.where(np.arange(len(y))[:, None] == 3, 2, y % 2)), "fitted"),
    "a gap in the labels": (lambda x, y: (x, np.where(y == 1, 2, y)), "fitted"),
    "more features than rows": (lambda x, y: (x[:5], np.arange(5)[:, None] % 3), "fitted"),
    "constant features": (lambda x, y: (np.where(np.arange(8) < 7, np.float32(2.5), x), y), "fitted"),
    "all features constant": (lambda x, y: (x * 0 + 1, y), "fitted"),
    "duplicates": (lambda x, y: (np.repeat(x[:20], 15, axis=0), np.repeat(y[:20], 15, axis=0)), "fitted"),
}


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.filterwarnings("error")
def test_each_edge_has_a_status_and_finite_numbers(tmp_path, edge):
    edit, status = EDGES[edge]
    splits = three_splits()
    change(splits, "train", edit)
    settings = dataclasses.replace(SETTINGS, methods=(*SETTINGS.methods, "head2toe"))
    metrics, cost = run_probe(write_store(tmp_path / "s", splits, 3), settings, "k")
    for one in (metrics, *metrics["methods"].values()):
        assert one["status"] == status
        assert (one["test_accuracy"] is None) == status.startswith("skipped")
    assert cost.flops >= 0


@pytest.mark.parametrize("empty", ["validation", "test"])
def test_a_split_with_nothing_to_judge_is_scored_as_none(tmp_path, empty):
    splits = three_splits()
    change(splits, empty, lambda x, y: (x[:0], y[:0]))
    metrics, _ = run_probe(write_store(tmp_path / "s", splits, 3), SETTINGS, "k")
    assert metrics[f"{empty}_accuracy"] is None
    assert metrics["status"] == "fitted" + (f", {NOTHING_CHOSEN}" if empty == "validation" else "")
    assert metrics["penalty"] == 1.0 or empty == "test"


def test_without_validation_every_method_says_that_nothing_was_chosen_and_the_last_layer_stands(tmp_path):
    splits = three_splits(layers=2)
    change(splits, "validation", lambda x, y: (x[:0], y[:0]))
    settings = dataclasses.replace(SETTINGS, methods=(*SETTINGS.methods, "head2toe"), iterations=1)
    metrics, _ = run_probe(write_store(tmp_path / "s", splits, 3, ("1", "final")), settings, "k")
    assert metrics["layer"] == "final"
    assert metrics["status"] == f"not converged, {NOTHING_CHOSEN}"
    assert metrics["methods"]["head2toe"]["status"] == f"not converged, {NOTHING_CHOSEN}"
    assert {metrics["methods"][name]["status"] for name in ("ridge", "knn", "sgd")} == {f"fitted, {NOTHING_CHOSEN}"}


def test_a_layer_that_cannot_be_fitted_in_time_is_marked_and_the_others_go_on(tmp_path):
    settings = dataclasses.replace(SETTINGS, iterations=1)
    metrics, _ = run_probe(write_store(tmp_path / "s", three_splits(), 3), settings, "k")
    assert metrics["status"] == "not converged"
    assert metrics["methods"]["ridge"]["status"] == "fitted"
