"""Layer, penalty and share are chosen on validation, on stores where test would choose the other."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from pipeline.probes.fitting import best
from pipeline.probes.judge import Score
from pipeline.probes.neighbours import nearest_scores
from pipeline.probes.outcome import Outcome, Spent
from pipeline.probes.probe import run_probe
from pipeline.probes.rows import ArrayRows
from tests.probes.stores import write_store
from tests.probes.test_probe import SETTINGS

SIZES = {"train": 400, "validation": 200, "test": 200}
ORDERS = [("validation", "test"), ("test", "validation")]


def signs(split, seed=0):
    """A sign for each example of a split, as many of either, and a generator for its features."""
    generator = np.random.default_rng([seed, *split.encode()])
    return generator.permutation(np.repeat([-1.0, 1.0], SIZES[split] // 2)), generator


def part(features, sign):
    """Features `(example, layer, width)` with the class that each sign stands for."""
    return features[:, None].astype(np.float32), (sign > 0).astype(np.int64)[:, None]


def knowing(split, layers):
    """Four features of two layers, which know the sign in some of them only."""
    sign, generator = signs(split)
    known = np.isin([0, 1], layers)[None, :, None]
    return part(generator.normal(size=(SIZES[split], 2, 4)) + 1.5 * sign[:, None, None] * known, sign)


def noisy(split, cleared):
    """A signal under noise, and the noise alone: the sign is the signal's, which their difference tells.

    Where it is not cleared, the sign is that of the noisy feature.
    """
    signal, generator = signs(split)
    noise = 2 * generator.normal(size=SIZES[split])
    features = np.stack([signal + noise, noise], axis=1)[:, None]
    return part(features, signal if cleared else features[:, 0, 0])


def relevant(split, kind):
    """Two features, the first more relevant in train; `first` or `second` says which of them can be trusted."""
    sign, generator = signs(split)
    noise = generator.normal(size=(2, SIZES[split]))
    pairs = {
        "both": (sign + 0.5 * noise[0], sign + noise[1]),
        "first": (sign + 0.5 * noise[0], -6 * sign),
        "second": (0.5 * noise[0], 3 * sign),
    }
    return part(np.stack(pairs[kind], axis=1)[:, None], sign)


@pytest.mark.parametrize(("first", "second"), ORDERS)
@pytest.mark.parametrize("method", ["logistic", "ridge", "knn", "sgd"])
def test_the_layer_is_the_best_on_validation(tmp_path, method, first, second):
    splits = {"train": knowing("train", [0, 1]), first: knowing(first, [0]), second: knowing(second, [1])}
    splits = {name: splits[name] for name in SIZES}
    settings = dataclasses.replace(SETTINGS, methods=(method,), sgd_epochs=30, fractions=())
    metrics, _ = run_probe(write_store(tmp_path / "s", splits, 2, ("0", "1")), settings, "k")
    assert metrics["layer"] == ("0" if first == "validation" else "1")
    assert metrics["validation_accuracy"] > 0.9 > 0.7 > metrics["test_accuracy"]
    assert max(one[method]["test_accuracy"] for one in metrics["layers"].values()) > 0.9


@pytest.mark.parametrize(("first", "second"), ORDERS)
@pytest.mark.parametrize("method", ["logistic", "ridge"])
def test_the_penalty_is_the_best_on_validation(tmp_path, method, first, second):
    """A strong penalty leaves each feature its own correlation with the sign, a weak one takes their difference."""
    splits = {"train": noisy("train", True), first: noisy(first, True), second: noisy(second, False)}
    splits = {name: splits[name] for name in SIZES}
    settings = dataclasses.replace(SETTINGS, methods=(method,), penalties=(100.0, 1e-4), fractions=())
    metrics, _ = run_probe(write_store(tmp_path / "s", splits, 2), settings, "k")
    assert metrics["penalty"] == (1e-4 if first == "validation" else 100.0)
    assert metrics["validation_accuracy"] > 0.9 > 0.85 > metrics["test_accuracy"]


@pytest.mark.parametrize(("first", "second"), ORDERS)
def test_the_penalty_of_numbers_is_the_best_on_validation(tmp_path, first, second):
    """A strong penalty takes next to nothing of any feature: right where the answers hardly vary."""
    splits = {}
    for name in SIZES:
        sign, generator = signs(name)
        x = generator.normal(size=(SIZES[name], 1, 1, 4)).astype(np.float32)
        told = x[:, 0, 0].sum(axis=1) if name in ("train", first) else 0.1 * sign
        splits[name] = (x, told[:, None].astype(np.float32))
    settings = dataclasses.replace(SETTINGS, methods=("ridge",), penalties=(1000.0, 1e-3), fractions=())
    metrics, _ = run_probe(write_store(tmp_path / "s", splits, 0), settings, "k")
    assert metrics["penalty"] == (1e-3 if first == "validation" else 1000.0)


@pytest.mark.parametrize(("first", "second"), ORDERS)
def test_the_share_of_head2toe_is_the_best_on_validation(tmp_path, first, second):
    splits = {"train": relevant("train", "both"), first: relevant(first, "first"), second: relevant(second, "second")}
    splits = {name: splits[name] for name in SIZES}
    settings = dataclasses.replace(SETTINGS, methods=("ridge", "head2toe"), lasso_shares=(0.5, 1.0), fractions=())
    metrics, _ = run_probe(write_store(tmp_path / "s", splits, 2), settings, "k")
    found = metrics["methods"]["head2toe"]
    assert found["features"] == (1 if first == "validation" else 2)
    assert found["validation_accuracy"] > 0.9 > 0.7 > found["test_accuracy"]


def test_equal_accuracies_are_told_apart_by_the_loss():
    assert best([Score(10, 0.5, 2.0), Score(10, 0.5, 1.0), Score(10, 0.4, 0.1)]) == 1
    kept, other = (
        Outcome({"validation_accuracy": 0.5, "validation_loss": loss, "test_accuracy": 0.5}, Spent())
        for loss in (1.0, 2.0)
    )
    assert max([other, kept], key=lambda one: one.validation) is kept


def test_more_neighbours_outvote_the_nearest():
    degrees = np.radians([0, 5, -5, 90])
    rows = ArrayRows(
        np.stack([np.cos(degrees), np.sin(degrees)], axis=1).astype(np.float32), np.array([[0], [1], [1], [0]]), 2
    )
    query = np.array([[np.cos(0.02), np.sin(0.02)]], np.float32)
    assert [int(nearest_scores(rows, query, count).argmax()) for count in (1, 3)] == [0, 1]
