"""Features chosen from all layers, against a naive group lasso and on layers of which one knows the answer."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from pydantic import ValidationError

from pipeline.probes.head2toe import group_lasso, most_relevant, relevance, smoothness
from pipeline.probes.probe import Where, run_probe
from pipeline.probes.rows import ArrayRows
from tests.probes.stores import three_splits, write_store
from tests.probes.test_probe import SETTINGS


@pytest.fixture
def rows():
    """Ten features, of which the first two tell three classes apart."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, (150, 1))
    x = generator.standard_normal((150, 10)).astype(np.float32)
    x[:, :2] += 1.5 * np.array([[0, 1], [1, 0], [-1, -1]], np.float32)[labels[:, 0]]
    return ArrayRows(x, labels, 3, 40)


def naive(rows, penalty, iterations=4000):
    """Plain proximal gradient in float64, without momentum."""
    x, y = np.hstack([rows.x, np.ones((150, 1))]).astype(np.float64), np.eye(3)[rows.labels[:, 0]]
    weight, step = np.zeros((11, 3)), 2 / np.linalg.eigvalsh(x.T @ x / 150)[-1]
    for _ in range(iterations):
        p = np.exp(x @ weight)
        weight = weight - step * x.T @ (p / p.sum(axis=1, keepdims=True) - y) / 150
        for feature in range(10):
            length = np.linalg.norm(weight[feature])
            weight[feature] *= max(0.0, 1 - step * penalty / length) if length else 0.0
    return weight[:10], weight[10]


def test_the_lasso_is_the_naive_one(rows):
    found = group_lasso(rows, 0.03, 300)
    weight, bias = naive(rows, 0.03)
    np.testing.assert_allclose(found.weight, weight, atol=1e-3)
    np.testing.assert_allclose(found.bias - found.bias.mean(), bias - bias.mean(), atol=1e-3)
    assert (relevance(found.weight) == 0).sum() == (relevance(weight) == 0).sum() > 0


def test_the_step_is_short_enough(rows):
    x = np.hstack([rows.x, np.ones((150, 1))]).astype(np.float64)
    assert smoothness(rows) == pytest.approx(np.linalg.eigvalsh(x.T @ x / 150)[-1] / 2, rel=0.1)


def test_the_most_relevant_are_kept_in_their_order():
    np.testing.assert_array_equal(most_relevant(np.array([0.1, 3.0, 0.0, 2.0, 3.0]), 0.6), [1, 3, 4])
    np.testing.assert_array_equal(most_relevant(np.array([0.1, 3.0]), 0.01), [1])


@pytest.mark.parametrize("memory", [0, 1 << 20])
def test_features_come_from_the_layers_that_know(tmp_path, memory):
    splits = three_splits(layers=3, apart=0.0)
    for name, informed in three_splits(layers=3).items():
        splits[name][0][:, :, 1], splits[name][1][:] = informed[0][:, :, 1], informed[1]
    settings = dataclasses.replace(SETTINGS, methods=("ridge", "head2toe"), lasso_shares=(0.2,))
    store = write_store(tmp_path / "s", splits, 3, ("0", "1", "2"))
    metrics, cost = run_probe(store, settings, "k", Where(memory))
    found = metrics["methods"]["head2toe"]
    assert found["features"] == 5
    assert found["features_of_layers"]["1"] >= 4
    assert found["test_accuracy"] > 0.7
    assert "head2toe" not in metrics["layers"]["1"]
    assert cost.methods["head2toe"].flops > 0


def test_one_class_is_skipped_and_the_others_say_so_too(tmp_path):
    splits = {name: (x, y * 0) for name, (x, y) in three_splits().items()}
    settings = dataclasses.replace(SETTINGS, methods=("ridge", "head2toe"))
    metrics, _ = run_probe(write_store(tmp_path / "s", splits, 3), settings, "k")
    assert metrics["methods"]["head2toe"]["status"] == "skipped: single class"


def test_it_cannot_choose_the_layer():
    with pytest.raises(ValidationError, match="the first method chooses the layer"):
        dataclasses.replace(SETTINGS, methods=("head2toe",))
