from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from pipeline.probes.linear import LinearModel
from pipeline.probes.logistic import Objective, fit_path
from pipeline.probes.moments import MomentsFitter, targets
from pipeline.probes.ridge import Spectrum
from pipeline.probes.rows import ArrayRows, Standardisation


@pytest.fixture
def data():
    """Three classes that overlap, in 6 features of very different scale, one of them constant; standardised."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 200)
    x = generator.standard_normal((200, 6)) + np.eye(3)[labels] @ generator.standard_normal((3, 6))
    x = (x * [1, 10, 1e3, 1e-3, 1, 0] + [0, 100, 0, 0, 5, 7]).astype(np.float32)
    moments = MomentsFitter().update(x, targets(labels[:, None], 3)).result
    return Standardisation.of(moments.mean, moments.spread).apply(x), labels


def fit(x, labels, classes, penalties, iterations=500):
    moments = MomentsFitter().update(x, targets(labels, classes)).result
    return fit_path(ArrayRows(x, labels, classes), Spectrum.of(moments), penalties, iterations)


def penalised(one, x, labels):
    return one.model.loss(x, labels) + one.penalty / 2 * (one.model.weight**2).sum()


def test_gradient_is_that_of_the_loss(data):
    x, labels = data[0], data[1][:, None]
    spectrum = Spectrum.of(MomentsFitter().update(x, targets(labels, 3)).result)
    objective = Objective(ArrayRows(x, labels, 3), spectrum, 0.1, 0.2)
    at = np.random.default_rng(1).standard_normal(7 * 3)
    _, gradient = objective(at)
    for index in range(0, 21, 4):
        step = np.zeros(21)
        step[index] = 1e-2
        slope = (objective(at + step)[0] - objective(at - step)[0]) / 2e-2
        assert gradient[index] == pytest.approx(slope, abs=2e-4)


def test_coordinates_are_undone_by_the_model(data):
    spectrum = Spectrum.of(MomentsFitter().update(data[0], targets(data[1][:, None], 3)).result)
    objective = Objective(ArrayRows(data[0], data[1][:, None], 3), spectrum, 0.01, 0.2)
    at = np.random.default_rng(1).standard_normal(7 * 3)
    np.testing.assert_allclose(objective.coordinates(objective.model(at)), at)


@pytest.mark.parametrize("penalty", [1.0, 0.01, 0.0001])
def test_the_optimum_is_scikit_learns(data, penalty):
    x, labels = data[0], data[1][:, None]
    (found,) = fit(x, labels, 3, (penalty,))
    theirs = LogisticRegression(C=1 / (penalty * len(x)), max_iter=5000, tol=1e-8).fit(
        x.astype(np.float64), labels[:, 0]
    )

    def loss(weight, bias):
        return LinearModel(weight, bias, 3).loss(x, labels) + penalty / 2 * (weight**2).sum()

    assert found.converged
    wanted = loss(theirs.coef_.T, theirs.intercept_)
    assert loss(found.model.weight, found.model.bias) == pytest.approx(wanted, abs=1e-4)


def test_a_path_ends_where_single_fits_end(data):
    x, labels = data[0], data[1][:, None]
    path = fit(x, labels, 3, (0.001, 1.0, 0.03))
    assert [one.penalty for one in path] == [1.0, 0.03, 0.001]
    for one in path:
        (alone,) = fit(x, labels, 3, (one.penalty,))
        assert penalised(one, x, labels) == pytest.approx(penalised(alone, x, labels), abs=1e-4)


def test_a_fit_that_is_cut_short_says_so(data):
    assert not fit(data[0], data[1][:, None], 3, (1e-4,), 2)[0].converged


def test_a_class_without_rows_is_never_predicted(data):
    (found,) = fit(data[0], data[1][:, None], 5, (0.01,))
    assert set(found.model.scores(data[0]).argmax(axis=2).ravel()) <= {0, 1, 2}


def test_one_class_alone_is_learned_without_failing(data):
    (found,) = fit(data[0], np.zeros((200, 1), dtype=np.int64), 2, (0.1,))
    assert set(found.model.scores(data[0]).argmax(axis=2).ravel()) == {0}


def test_several_answers_are_several_models_that_share_the_rows(data):
    x, first = data
    second = (first + (x[:, 0] > 0)) % 3
    both = fit(x, np.stack([first, second], axis=1), 3, (0.01,))[0].model
    for answer, labels in enumerate((first, second)):
        alone = fit(x, labels[:, None], 3, (0.01,))[0].model
        np.testing.assert_allclose(both.scores(x)[:, answer], alone.scores(x)[:, 0], atol=0.1)
