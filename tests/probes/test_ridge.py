from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from pipeline.probes.moments import MomentsFitter, targets
from pipeline.probes.ridge import Spectrum, ridge_path
from pipeline.probes.rows import Standardisation

PENALTIES = (0.001, 1.0, 0.05)


def fit(x, labels, classes):
    moments = MomentsFitter().update(x, targets(labels, classes)).result
    standardised = Standardisation.of(moments.mean, moments.spread).apply(x.copy())
    return standardised, ridge_path(moments, Spectrum.of(moments), PENALTIES, classes)


@pytest.mark.parametrize(("rows", "width"), [(200, 6), (20, 50)], ids=["tall", "more features than rows"])
def test_every_penalty_is_scikit_learns_ridge(rows, width):
    generator = np.random.default_rng(0)
    x = (generator.standard_normal((rows, width)) * np.logspace(-2, 2, width) + 5).astype(np.float32)
    labels = generator.integers(0, 3, (rows, 1))
    standardised, path = fit(x, labels, 3)
    assert [penalty for penalty, _ in path] == sorted(PENALTIES, reverse=True)
    for penalty, model in path:
        theirs = Ridge(alpha=penalty * rows).fit(standardised.astype(np.float64), 2 * np.eye(3)[labels[:, 0]] - 1)
        np.testing.assert_allclose(model.weight, theirs.coef_.T, atol=1e-3)
        np.testing.assert_allclose(model.bias, theirs.intercept_, atol=1e-5)


def test_a_class_without_rows_is_never_predicted():
    generator = np.random.default_rng(0)
    x, labels = generator.standard_normal((60, 4)).astype(np.float32), generator.choice([0, 3], (60, 1))
    standardised, path = fit(x, labels, 5)
    for _, model in path:
        np.testing.assert_allclose(model.scores(standardised * 100).sum(axis=2), 2 - 5, atol=1e-3)
        assert set(model.scores(standardised * 100).argmax(axis=2).ravel()) <= {0, 3}


def test_duplicate_and_constant_features_do_no_harm():
    generator = np.random.default_rng(0)
    x = np.repeat(generator.standard_normal((80, 2)), 3, axis=1).astype(np.float32)
    x[:, 5] = 7
    labels = (x[:, :1] > 0).astype(np.int64)
    standardised, path = fit(x, labels, 2)
    model = path[-1][1]
    np.testing.assert_allclose(model.weight[0], model.weight[1], atol=1e-3)
    np.testing.assert_array_equal(model.weight[5], 0)
    assert np.mean(model.scores(standardised).argmax(axis=2) == labels) > 0.95
