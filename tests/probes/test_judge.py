from __future__ import annotations

import numpy as np
import pytest

from pipeline.probes.judge import details, judge, score_path
from pipeline.probes.linear import LinearModel
from pipeline.probes.rows import ArrayRows


@pytest.fixture
def rows():
    generator = np.random.default_rng(0)
    x = generator.standard_normal((90, 5)).astype(np.float32)
    return ArrayRows(x, generator.integers(0, 3, (90, 2)), 4)


def model(seed):
    generator = np.random.default_rng(seed)
    return LinearModel(generator.standard_normal((5, 8)), generator.standard_normal(8), 4)


def test_what_is_counted_is_what_a_naive_loop_counts(rows):
    one = model(1)
    (found,) = judge([one.scores], rows, readout=3)
    predicted = one.scores(rows.x).argmax(axis=2)
    assert found.accuracy == np.mean(predicted == rows.labels)
    assert found.loss == pytest.approx(one.loss(rows.x, rows.labels), rel=1e-6)
    for true in range(4):
        for taken in range(4):
            assert found.confusion[true, taken] == np.sum((rows.labels == true) & (predicted == taken))
    assert found.class_accuracy[3] is None
    assert found.class_accuracy[0] == np.mean(predicted[rows.labels == 0] == 0)
    np.testing.assert_array_equal(found.right, (predicted == rows.labels).reshape(30, 6).sum(axis=1))


def test_the_calibration_error_is_guos(rows):
    one = model(2)
    (found,) = judge([one.scores], rows)
    scores = one.scores(rows.x).astype(np.float64)
    p = np.exp(scores) / np.exp(scores).sum(axis=2, keepdims=True)
    confidence, hit = p.max(axis=2).ravel(), (p.argmax(axis=2) == rows.labels).ravel()
    error = 0.0
    for low in np.arange(15) / 15:
        inside = (confidence >= low) & (confidence < low + 1 / 15)
        if inside.any():
            error += inside.mean() * abs(confidence[inside].mean() - hit[inside].mean())
    assert found.calibration_error == pytest.approx(error, abs=1e-6)


@pytest.mark.parametrize("block", [None, 7])
def test_a_path_is_scored_as_each_model_alone(rows, block):
    models = [model(3), model(4)]
    blocks = ArrayRows(rows.x, rows.labels, 4, block)
    for found, alone in zip(score_path(models, blocks), judge([one.scores for one in models], rows), strict=True):
        assert (found.answers, found.accuracy) == (180, alone.accuracy)
        assert found.loss == pytest.approx(alone.loss, rel=1e-6)


def test_the_bootstrap_interval_is_that_of_drawn_examples(rows):
    (found,) = judge([model(5).scores], rows, readout=3)
    generator = np.random.default_rng(0)
    drawn = found.right[generator.integers(0, 30, (20_000, 30))].sum(axis=1) / 180
    assert found.interval(seed=0) == pytest.approx(np.percentile(drawn, (2.5, 97.5)), abs=0.012)
    assert found.interval(seed=0) == found.interval(seed=0)


def test_nothing_to_judge_gives_no_numbers():
    empty = ArrayRows(np.zeros((0, 5), np.float32), np.zeros((0, 2), np.int64), 4)
    found = details(judge([model(1).scores], empty, readout=3)[0], seed=0)
    assert found["test_accuracy"] is found["test_interval"] is found["calibration_error"] is found["test_loss"] is None
