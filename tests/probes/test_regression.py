"""Answers that are numbers: ridge against scikit-learn, and what is said of the other probes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score

from pipeline.probes.probe import run_probe
from tests.probes.stores import write_store
from tests.probes.test_probe import SETTINGS

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
    assert metrics["test_rmse"] == pytest.approx(np.sqrt(((guessed - truth) ** 2).mean()), rel=1e-4)
    low, high = metrics["test_interval"]
    assert low < metrics["test_r2"] < high
    assert metrics["validation_r2"] == max(one["validation_r2"] for one in metrics["path"])
    assert metrics["test_accuracy"] is None


def test_a_classifier_says_that_it_cannot_and_ridge_goes_on(splits, tmp_path):
    settings = dataclasses.replace(SETTINGS, methods=(*SETTINGS.methods, "head2toe"))
    metrics, _ = run_probe(write_store(tmp_path / "s", splits, 0), settings, "k")
    for one in (metrics, *(metrics["methods"][name] for name in ("knn", "sgd", "head2toe"))):
        assert one["status"] == "skipped: the answers are numbers"
    assert metrics["methods"]["ridge"]["test_r2"] > 0.5


@pytest.mark.parametrize("empty", ["train", "validation", "test"])
def test_an_empty_split_has_no_score(splits, tmp_path, empty):
    splits[empty] = tuple(part[:0] for part in splits[empty])
    metrics, _ = run_probe(write_store(tmp_path / "s", splits, 0), RIDGE, "k")
    assert metrics.get(f"{empty}_r2") is None
    assert metrics["status"] == ("skipped: no training rows" if empty == "train" else "fitted")


def test_answers_that_are_all_equal_are_skipped(splits, tmp_path):
    splits = {name: (x, y * 0 + 3) for name, (x, y) in splits.items()}
    metrics, _ = run_probe(write_store(tmp_path / "s", splits, 0), RIDGE, "k")
    assert metrics["status"] == "skipped: all answers are equal"
