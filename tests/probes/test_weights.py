"""Classes that count more or less: against scikit-learn, against repeated rows, and what is refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

from pipeline.errors import PermafrostError
from pipeline.probes.linear import LinearModel
from pipeline.probes.logistic import fit_path
from pipeline.probes.moments import source_moments
from pipeline.probes.probe import run_probe
from pipeline.probes.ridge import Spectrum, ridge_path
from pipeline.probes.rows import ArrayRows, Standardisation
from pipeline.probes.weights import weights_of
from tests.probes.stores import three_splits, write_store
from tests.probes.test_probe import SETTINGS

WEIGHTS = {0: 5.0, 2: 0.5}


def given(labels):
    weights = weights_of(WEIGHTS, labels, 3)
    assert weights is not None
    return weights


@pytest.fixture
def data():
    generator = np.random.default_rng(0)
    labels = generator.choice(3, 200, p=(0.1, 0.6, 0.3))
    x = generator.standard_normal((200, 6)) + np.eye(3)[labels] @ generator.standard_normal((3, 6))
    return x.astype(np.float32), labels[:, None]


def weighted(x, labels):
    """Rows standardised by their weighted moments, and these."""
    rows = ArrayRows(x.copy(), labels, 3, 64, given(labels))
    moments = source_moments(rows)
    Standardisation.of(moments.mean, moments.spread).apply(rows.x)
    return rows, moments


def test_balanced_weights_are_scikit_learns_and_a_class_without_rows_takes_no_part():
    labels = np.array([[0], [0], [0], [2]])
    balanced = weights_of("balanced", labels, 4)
    assert balanced is not None
    np.testing.assert_allclose(balanced[[0, 2]], [4 / (2 * 3), 4 / (2 * 1)])
    np.testing.assert_array_equal(weights_of({1: 3.0}, labels, 4), [1, 3, 1, 1])
    assert weights_of(None, labels, 4) is None


def test_weighted_logistic_regression_ends_at_scikit_learns_optimum(data):
    rows, moments = weighted(*data)
    (found,) = fit_path(rows, Spectrum.of(moments), (0.01,), 500)
    sample = given(rows.labels)[rows.labels[:, 0]].astype(np.float64)
    theirs = LogisticRegression(C=1 / (0.01 * sample.sum()), max_iter=5000, tol=1e-8)
    theirs.fit(rows.x.astype(np.float64), rows.labels[:, 0], sample_weight=sample)

    def loss(weight, bias):
        each = [LinearModel(weight, bias, 3).loss(rows.x[i : i + 1], rows.labels[i : i + 1]) for i in range(200)]
        return np.average(each, weights=sample) + 0.01 / 2 * (weight**2).sum()

    assert found.converged
    wanted = loss(theirs.coef_.T, theirs.intercept_)
    assert loss(found.model.weight, found.model.bias) == pytest.approx(wanted, abs=1e-4)


def test_weighted_ridge_is_scikit_learns(data):
    rows, moments = weighted(*data)
    sample = given(rows.labels)[rows.labels[:, 0]]
    for penalty, model in ridge_path(moments, Spectrum.of(moments), (1.0, 0.01), 3):
        theirs = Ridge(alpha=penalty * sample.sum()).fit(
            rows.x.astype(np.float64), 2 * np.eye(3)[rows.labels[:, 0]] - 1, sample_weight=sample
        )
        np.testing.assert_allclose(model.weight, theirs.coef_.T, atol=1e-3)
        np.testing.assert_allclose(model.bias, theirs.intercept_, atol=1e-4)


def test_several_answers_of_a_row_weigh_each_by_its_own_class(data):
    x, first = data
    labels = np.concatenate([first, (first + 1) % 3], axis=1)
    rows = ArrayRows(x, labels, 3, None, given(labels))
    (both,) = fit_path(rows, Spectrum.of(source_moments(rows)), (0.05,), 500)
    share = given(labels)[labels].mean() / given(first)[first].mean()
    alone = ArrayRows(x, first, 3, None, rows.class_weights)
    (one,) = fit_path(alone, Spectrum.of(source_moments(alone)), (float(0.05 * share),), 500)
    np.testing.assert_allclose(both.model.scores(x)[:, 0], one.model.scores(x)[:, 0], atol=0.05)


def test_a_rare_class_is_found_more_often_when_classes_are_balanced(tmp_path):
    splits = three_splits(400, classes=2, apart=0.3)
    for x, labels in splits.values():
        kept = (labels[:, 0] == 0) | (np.arange(len(labels)) % 8 == 0)
        splits[next(name for name, part in splits.items() if part[0] is x)] = (x[kept], labels[kept])
    store = write_store(tmp_path / "s", splits, 2)
    plain, balanced = (
        run_probe(store, dataclasses.replace(SETTINGS, class_weights=wanted, penalties=(0.01,)), "k")[0]
        for wanted in (None, "balanced")
    )
    for one in ("logistic", "ridge"):
        recall = [(run if one == "logistic" else run["methods"][one])["class_accuracy"][1] for run in (plain, balanced)]
        assert recall[1] > recall[0] + 0.1, one


def test_ridge_says_that_it_cannot_weigh_several_answers_and_the_others_go_on(tmp_path):
    splits = {name: (x, np.concatenate([y, y], axis=1)) for name, (x, y) in three_splits().items()}
    settings = dataclasses.replace(SETTINGS, class_weights="balanced")
    metrics, _ = run_probe(write_store(tmp_path / "s", splits, 3), settings, "k")
    assert metrics["methods"]["ridge"]["status"] == "skipped: class weights need one answer a row"
    assert metrics["status"] == "fitted"


def test_a_weight_for_a_class_that_there_is_not_is_refused(tmp_path):
    settings = dataclasses.replace(SETTINGS, class_weights={7: 1.0})
    with pytest.raises(PermafrostError, match=r"names class 7; the classes are 0 to 2\s+to mend: edit params.yaml"):
        run_probe(write_store(tmp_path / "s", three_splits(), 3), settings, "k")
