"""What the probe stage says that it cost, recomputed by hand."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest

from pipeline.probes import probe
from pipeline.probes.outcome import Outcome, Spent
from pipeline.probes.probe import run_probe, stage_cost
from tests.probes.stores import three_splits, write_store
from tests.probes.test_probe import SETTINGS

ROWS, WIDTH, SCORES, LAYERS = 300, 8, 3, 2
EIGENVECTORS, ROTATION = 9 * WIDTH**3, 2 * WIDTH**2 * SCORES
MOMENTS = LAYERS * (ROWS * WIDTH * (WIDTH + 1) + 2 * ROWS * WIDTH * SCORES)
PASS = 4 * ROWS * WIDTH * SCORES


@pytest.fixture
def store(tmp_path):
    """Two layers that are one and the same, so that what is fitted to them takes equally many passes."""
    splits = {name: (np.repeat(x, LAYERS, axis=2), y) for name, (x, y) in three_splits(ROWS).items()}
    return write_store(tmp_path / "s", splits, SCORES, ("1", "final"))


def outcome(seconds, flops, epoch=None):
    return Outcome({}, Spent(seconds, flops), epoch)


def test_a_method_costs_the_reading_and_its_fits_on_all_layers_and_the_stage_everything_once():
    found = {
        "1": {"ridge": outcome(1.0, 10), "knn": outcome(2.0, 20)},
        "final": {"ridge": outcome(4.0, 40, 0.5), "knn": outcome(8.0, 80)},
    }
    outcomes = found["final"] | {"head2toe": outcome(16.0, 160)}
    cost = stage_cost(outcomes, found, Spent(32.0, 320), Spent(64.0, 640), "k")
    assert {name: (one.seconds, one.flops) for name, one in cost.methods.items()} == {
        "ridge": (37.0, 370),
        "knn": (42.0, 420),
        "head2toe": (48.0, 480),
    }
    assert (cost.seconds, cost.flops, cost.seconds_per_epoch) == (127.0, 1270, 0.5)


def test_reading_is_part_of_each_methods_seconds(store, monkeypatch):
    slowly = probe.standardise

    def standardise(rows, moments):
        time.sleep(1.0)
        slowly(rows, moments)

    monkeypatch.setattr(probe, "standardise", standardise)
    _, cost = run_probe(store, dataclasses.replace(SETTINGS, fractions=()), "k")
    assert all(one.seconds > 1.0 for one in cost.methods.values())
    assert 1.0 < cost.seconds < sum(one.seconds for one in cost.methods.values()) - 2.9, "the stage reads once"


def test_every_method_is_counted_on_every_layer(store):
    settings = dataclasses.replace(SETTINGS, fractions=(1.0,))
    metrics, cost = run_probe(store, settings, "k")
    path = EIGENVECTORS + 3 * 2 * ROTATION + metrics["epochs"] * (PASS + 2 * ROTATION)
    own = {
        "logistic": LAYERS * path,
        "ridge": LAYERS * (EIGENVECTORS + 4 * ROTATION),
        "knn": LAYERS * 2 * 200 * ROWS * WIDTH,
        "sgd": LAYERS * 3 * PASS,
    }
    assert {name: one.flops for name, one in cost.methods.items()} == {name: MOMENTS + n for name, n in own.items()}
    assert cost.flops == MOMENTS + sum(own.values())
    each = {name: one.flops_per_epoch for name, one in cost.methods.items()}
    assert each == {"logistic": PASS + 2 * ROTATION, "ridge": None, "knn": None, "sgd": PASS}


def test_the_learning_curve_is_the_stages_cost_and_no_methods(store):
    settings = dataclasses.replace(SETTINGS, methods=("ridge",), fractions=(0.1, 1.0))
    _, cost = run_probe(store, settings, "k")
    fit = EIGENVECTORS + 4 * ROTATION
    assert cost.methods["ridge"].flops == MOMENTS + LAYERS * fit
    assert cost.flops == MOMENTS + LAYERS * fit + MOMENTS // 10 + fit
    assert cost.seconds > cost.methods["ridge"].seconds > 0


def test_head2toe_counts_the_lasso_and_every_share(store):
    settings = dataclasses.replace(SETTINGS, methods=("ridge", "head2toe"), lasso_shares=(0.5,), fractions=())
    metrics, cost = run_probe(store, settings, "k")
    lasso = 30 * LAYERS * PASS + 8 * 4 * ROWS * LAYERS * WIDTH
    path = EIGENVECTORS + 6 * ROTATION + metrics["methods"]["head2toe"]["epochs"] * (PASS + 2 * ROTATION)
    assert cost.methods["head2toe"].flops == MOMENTS + lasso + MOMENTS // LAYERS + path


def test_the_learning_curve_takes_the_first_examples_of_one_order(store, monkeypatch):
    picked, opened = [], probe.open_rows

    def recording(store, settings, where, train=None):
        picked.append(train)
        return opened(store, settings, where, train)

    monkeypatch.setattr(probe, "open_rows", recording)
    run_probe(store, dataclasses.replace(SETTINGS, methods=("ridge",), fractions=(0.5, 0.1, 1.0)), "k")
    order = np.random.default_rng(SETTINGS.seed).permutation(ROWS)
    assert picked[0] is None
    for rows, count in zip(picked[1:], (30, 150), strict=True):
        np.testing.assert_array_equal(rows, np.sort(order[:count]))
