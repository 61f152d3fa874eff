from __future__ import annotations

import numpy as np
import pytest

from pipeline.probes.moments import MomentsFitter, targets
from pipeline.probes.rows import Standardisation


def test_moments_are_those_of_the_whole_data_in_float64():
    generator = np.random.default_rng(0)
    x = (generator.standard_normal((500, 9)) * np.logspace(-2, 2, 9) + 50).astype(np.float32)
    labels = generator.integers(0, 3, (500, 2))
    fitter = MomentsFitter()
    for start in range(0, 500, 77):
        fitter.update(x[start : start + 77], targets(labels[start : start + 77], 3))
    found, whole, y = fitter.result, x.astype(np.float64), targets(labels, 3).astype(np.float64)
    scale = whole.std(axis=0)
    np.testing.assert_allclose(found.mean, whole.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(found.covariance / np.outer(scale, scale), np.corrcoef(whole.T), atol=2e-6)
    np.testing.assert_allclose(found.target_mean, y.mean(axis=0))
    cross = (whole - whole.mean(axis=0)).T @ (y - y.mean(axis=0)) / 500
    np.testing.assert_allclose(found.cross / scale[:, None], cross / scale[:, None], atol=1e-6)


def test_a_spread_that_float32_would_lose_beside_a_large_mean_is_found():
    x = (np.random.default_rng(0).integers(-8, 9, (4000, 1)) / 64 + 1000).astype(np.float32)
    found = MomentsFitter().update(x, np.ones((4000, 1))).result
    assert found.spread[0] == pytest.approx(x.astype(np.float64).std(), rel=1e-5)


def test_a_constant_feature_has_spread_zero_and_vanishes():
    x = np.full((100, 2), 0.1, np.float32)
    x[:, 1] = np.arange(100)
    found = MomentsFitter().update(x, np.ones((100, 1))).result
    assert found.spread[0] == 0
    standardised = Standardisation.of(found.mean, found.spread).apply(x)
    np.testing.assert_array_equal(standardised[:, 0], 0)
    np.testing.assert_allclose([standardised[:, 1].mean(), standardised[:, 1].std()], [0, 1], atol=1e-5)


def test_no_rows_have_no_moments():
    with pytest.raises(ValueError, match="no rows"):
        _ = MomentsFitter().result
