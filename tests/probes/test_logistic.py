from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from pipeline.probes.logistic import LinearModel, Standardisation, _objective, fit_path


@pytest.fixture
def data():
    """Three classes that overlap, in 6 features of very different scale, one of them constant."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 200)
    x = generator.standard_normal((200, 6)) + np.eye(3)[labels] @ generator.standard_normal((3, 6))
    x = (x * [1, 10, 1e3, 1e-3, 1, 0] + [0, 100, 0, 0, 5, 7]).astype(np.float32)
    return x, labels


def test_standardised_rows_have_mean_0_and_spread_1_and_constants_vanish(data):
    x = Standardisation.fit(data[0]).apply(data[0])
    np.testing.assert_allclose(x.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(x.std(axis=0), [1, 1, 1, 1, 1, 0], atol=1e-4)


def test_gradient_is_that_of_the_loss(data):
    x = Standardisation.fit(data[0]).apply(data[0])
    one_hot = np.eye(3, dtype=np.float32)[data[1]][:, None]
    at = np.random.default_rng(1).standard_normal(7 * 3)
    _, gradient = _objective(at, x, one_hot, 0.1)
    for index in range(0, 21, 4):
        step = np.zeros(21)
        step[index] = 1e-2
        slope = (_objective(at + step, x, one_hot, 0.1)[0] - _objective(at - step, x, one_hot, 0.1)[0]) / 2e-2
        assert gradient[index] == pytest.approx(slope, abs=2e-4)


@pytest.mark.parametrize("penalty", [1.0, 0.01, 0.0001])
def test_the_optimum_is_scikit_learns(data, penalty):
    x, labels = Standardisation.fit(data[0]).apply(data[0]), data[1][:, None]
    (fit,) = fit_path(x, labels, 3, (penalty,), 500)
    theirs = LogisticRegression(C=1 / (penalty * len(x)), max_iter=5000, tol=1e-8).fit(
        x.astype(np.float64), labels[:, 0]
    )

    def loss(weight, bias):
        return LinearModel(weight, bias, 3).loss(x, labels) + penalty / 2 * (weight**2).sum()

    assert fit.converged
    found, wanted = loss(fit.model.weight, fit.model.bias), loss(theirs.coef_.T, theirs.intercept_)
    assert found == pytest.approx(wanted, abs=1e-4)


def test_a_path_ends_where_single_fits_end(data):
    x, labels = Standardisation.fit(data[0]).apply(data[0]), data[1][:, None]
    path = fit_path(x, labels, 3, (0.001, 1.0, 0.03), 500)
    assert [fit.penalty for fit in path] == [1.0, 0.03, 0.001]
    for fit in path:
        (alone,) = fit_path(x, labels, 3, (fit.penalty,), 500)
        assert fit.model.loss(x, labels) == pytest.approx(alone.model.loss(x, labels), abs=1e-3)


def test_a_fit_that_is_cut_short_says_so(data):
    x, labels = Standardisation.fit(data[0]).apply(data[0]), data[1][:, None]
    assert not fit_path(x, labels, 3, (1e-4,), 2)[0].converged


def test_a_class_without_rows_is_never_predicted(data):
    x, labels = Standardisation.fit(data[0]).apply(data[0]), data[1][:, None]
    (fit,) = fit_path(x, labels, 5, (0.01,), 500)
    assert set(fit.model.scores(x).argmax(axis=2).ravel()) <= {0, 1, 2}


def test_one_class_alone_is_learned_without_failing(data):
    (fit,) = fit_path(data[0][:, 4:5], np.zeros((200, 1), dtype=np.int64), 2, (0.1,), 100)
    assert set(fit.model.scores(data[0][:, 4:5]).argmax(axis=2).ravel()) == {0}


def test_several_answers_are_several_models_that_share_the_rows(data):
    x, first = Standardisation.fit(data[0]).apply(data[0]), data[1]
    second = (first + (x[:, 0] > 0)) % 3
    both = fit_path(x, np.stack([first, second], axis=1), 3, (0.01,), 500)[0].model
    for answer, labels in enumerate((first, second)):
        alone = fit_path(x, labels[:, None], 3, (0.01,), 500)[0].model
        np.testing.assert_allclose(both.scores(x)[:, answer], alone.scores(x)[:, 0], atol=0.02)
