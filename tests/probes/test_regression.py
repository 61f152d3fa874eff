"""Answers that are numbers: ridge against scikit-learn, and what is said of the other probes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score

from pipeline.probes.neighbours import TEMPERATURE
from pipeline.probes.probe import run_probe
from tests.probes.stores import write_store
from tests.probes.test_probe import NOTHING_CHOSEN, SETTINGS

RIDGE = dataclasses.replace(SETTINGS, methods=("ridge",))


@pytest.fixture
def splits():
    """Two answers an example, on scales of their own, from 8 features with noise."""
    generator = np.random.default_rng(0)
    mixing = generator.standard_normal((8, 2)) * [1, 50]
    found = {}
    for name, rows in (("train", 200), ("validation", 60), ("test", 80)):
        x = generator.standard_normal((rows, 1, 1, 8)).astype(np.float32)
        y = x[:, 0, 0] @ mixing + generator.standard_normal((rows, 2)) * [1, 50] + [0, 1000]
        found[name] = (x, y.astype(np.float32))
    return found


def test_the_penalty_is_chosen_by_explained_variance_and_test_is_scikit_learns(splits, tmp_path):
    metrics, _ = run_probe(write_store(tmp_path / "s", splits, 0), RIDGE, "k")
    x = {name: part[0][:, 0, 0].astype(np.float64) for name, part in splits.items()}
    mean, spread = x["train"].mean(axis=0), x["train"].std(axis=0)
    theirs = Ridge(alpha=metrics["penalty"] * 200).fit((x["train"] - mean) / spread, splits["train"][1])
    guessed, truth = theirs.predict((x["test"] - mean) / spread), splits["test"][1]
    explained = 1 - ((guessed - truth) ** 2).sum() / ((truth - truth.mean(axis=0)) ** 2).sum()
    assert metrics["test_r2"] == pytest.approx(explained, abs=1e-4)
    assert metrics["test_r2"] == pytest.approx(r2_score(truth, guessed, multioutput="variance_weighted"), abs=1e-4)
    assert metrics["test_mse"] == pytest.approx(((guessed - truth) ** 2).mean(), rel=1e-4)
    ranks = [spearmanr(one, other).statistic for one, other in zip(guessed.T, truth.T, strict=True)]
    assert metrics["test_spearman"] == pytest.approx(np.mean(ranks), abs=1e-4)
    low, high = metrics["test_interval"]
    assert low < metrics["test_r2"] < high
    assert metrics["validation_r2"] == max(one["validation_r2"] for one in metrics["path"])
    assert metrics["penalty"] == min(metrics["path"], key=lambda one: one["validation_mse"])["penalty"]
    assert not any("accuracy" in name for name in metrics)


def test_methods_for_classes_say_so_and_the_first_of_the_others_takes_their_place(splits, tmp_path):
    settings = dataclasses.replace(SETTINGS, methods=(*SETTINGS.methods, "head2toe"), fractions=(0.2, 1.0))
    metrics, cost = run_probe(write_store(tmp_path / "s", splits, 0), settings, "k")
    assert metrics["method"] == next(name for name in SETTINGS.methods if name in ("ridge", "knn"))
    found = {metrics["method"]: metrics, **metrics["methods"]}
    assert {*found} == {*settings.methods} == {*cost.methods}
    for name in ("logistic", "sgd", "head2toe"):
        assert found[name]["status"] == "skipped: for classes, and the answers are numbers"
        assert found[name]["test_r2"] is None
    assert found["ridge"]["test_r2"] > 0.5
    few, all_of_them = metrics["learning_curve"]
    assert (few["examples"], all_of_them["examples"]) == (40, 200)
    assert few["test_r2"] < all_of_them["test_r2"] == metrics["test_r2"]


def test_neighbours_answer_with_their_weighted_mean(splits, tmp_path):
    settings = dataclasses.replace(SETTINGS, methods=("knn",), neighbours=3)
    metrics, _ = run_probe(write_store(tmp_path / "s", splits, 0), settings, "k")
    x, y = ({name: part[place].reshape(len(part[0]), -1) for name, part in splits.items()} for place in (0, 1))
    mean, spread = x["train"].mean(axis=0), x["train"].std(axis=0)
    unit = {name: (rows - mean) / spread for name, rows in x.items()}
    unit = {name: rows / np.linalg.norm(rows, axis=1, keepdims=True) for name, rows in unit.items()}
    similar = unit["test"] @ unit["train"].T
    nearest = np.argsort(-similar, axis=1)[:, :3]
    votes = np.exp(np.take_along_axis(similar, nearest, axis=1) / TEMPERATURE)
    guessed = (votes[:, :, None] * y["train"][nearest]).sum(axis=1) / votes.sum(axis=1, keepdims=True)
    assert metrics["test_r2"] == pytest.approx(r2_score(y["test"], guessed, multioutput="variance_weighted"), abs=1e-4)


@pytest.mark.parametrize("empty", ["train", "validation", "test"])
def test_an_empty_split_has_no_score(splits, tmp_path, empty):
    splits[empty] = tuple(part[:0] for part in splits[empty])
    metrics, _ = run_probe(write_store(tmp_path / "s", splits, 0), RIDGE, "k")
    assert metrics.get(f"{empty}_r2") is None
    statuses = {"train": "skipped: no training rows", "validation": f"fitted, {NOTHING_CHOSEN}", "test": "fitted"}
    assert metrics["status"] == statuses[empty]


def test_answers_that_are_all_equal_are_skipped(splits, tmp_path):
    splits = {name: (x, y * 0 + 3) for name, (x, y) in splits.items()}
    metrics, _ = run_probe(write_store(tmp_path / "s", splits, 0), RIDGE, "k")
    assert metrics["status"] == "skipped: all answers are equal"
    assert metrics["test_r2"] is None


def test_a_test_split_whose_answers_are_equal_has_an_error_and_no_explained_variance(splits, tmp_path):
    splits["test"] = (splits["test"][0], splits["test"][1] * 0 + 3)
    metrics, _ = run_probe(write_store(tmp_path / "s", splits, 0), RIDGE, "k")
    assert (metrics["status"], metrics["test_r2"], metrics["test_interval"]) == ("fitted", None, None)
    assert metrics["test_spearman"] is None
    assert metrics["test_mse"] > 0
