"""Scores of numbers, recomputed by definition and by other people's code."""

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import r2_score

from pipeline.tasks import scoring
from pipeline.tasks.scoring import (
    SquaredErrors,
    accuracy_interval,
    class_scores,
    mse,
    number_scores,
    r2,
    r2_interval,
    spearman,
    wilson_interval,
)

RANDOM = np.random.default_rng(0)
TARGETS = (RANDOM.normal(size=(60, 2)) * [1, 30] + [5, 1e4]).astype(np.float32)
GUESSED = (TARGETS + RANDOM.normal(size=(60, 2)) * [0.5, 20]).astype(np.float32)


def test_r2_and_mse_are_their_definitions() -> None:
    guessed, targets = GUESSED.astype(np.float64), TARGETS.astype(np.float64)
    errors = sum((guessed[row, answer] - targets[row, answer]) ** 2 for row in range(60) for answer in range(2))
    spread = sum(((targets[:, answer] - targets[:, answer].mean()) ** 2).sum() for answer in range(2))
    assert r2(GUESSED, TARGETS) == pytest.approx(1 - errors / spread)
    assert r2(GUESSED, TARGETS) == pytest.approx(r2_score(targets, guessed, multioutput="variance_weighted"))
    assert mse(GUESSED, TARGETS) == pytest.approx(errors / 120)
    assert r2(np.broadcast_to(TARGETS.mean(axis=0), TARGETS.shape), TARGETS) == pytest.approx(0.0, abs=1e-6)


def test_blocks_add_up_to_the_whole() -> None:
    one = SquaredErrors()
    for start in range(0, 60, 7):
        one.update(GUESSED[start : start + 7], TARGETS[start : start + 7])
    assert one.r2 == pytest.approx(r2(GUESSED, TARGETS), rel=1e-12)
    assert one.mse == pytest.approx(mse(GUESSED, TARGETS), rel=1e-12)


def test_spearman_shares_ranks_and_is_the_mean_over_answers() -> None:
    guessed, targets = np.round(GUESSED / 10), np.round(TARGETS / 10, 1)
    guessed[:, 0], targets[:, 0] = RANDOM.integers(0, 4, 60), RANDOM.integers(0, 4, 60)
    theirs = [spearmanr(one, other).statistic for one, other in zip(guessed.T, targets.T, strict=True)]
    assert spearman(guessed, targets) == pytest.approx(np.mean(theirs))


def test_the_interval_is_that_of_resampled_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "RESAMPLES", 50)
    generator, found = np.random.default_rng(3), []
    for _ in range(50):
        rows = generator.integers(0, 60, 60)
        found.append(r2_score(TARGETS[rows], GUESSED[rows], multioutput="variance_weighted"))
    assert r2_interval(GUESSED, TARGETS, 3) == pytest.approx(np.percentile(found, (2.5, 97.5)), abs=1e-6)


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_what_is_not_defined_is_none(rows: int) -> None:
    targets = np.full((rows, 1), 0.1, np.float32)
    found = number_scores(targets + 1, targets, 0)
    assert (found["test_r2"], found["test_interval"], found["test_spearman"]) == (None, None, None)
    assert (found["test_mse"] is None) == (rows == 0)


def test_a_pair_has_an_interval_though_most_draws_of_it_do_not_vary() -> None:
    low, high = r2_interval(np.array([[0.0], [1.0]]), np.array([[0.0], [2.0]]), 0) or (None, None)
    assert low == high == 0.5


def test_the_interval_of_an_accuracy_is_that_of_resampled_examples() -> None:
    """Half of the examples are all but wholly right, half are near chance: answers are far from independent."""
    right = np.concatenate([RANDOM.binomial(100, 0.98, 40), RANDOM.binomial(100, 0.5, 40)])
    drawn = right[RANDOM.integers(0, 80, (20_000, 80))].mean(axis=1) / 100
    assert accuracy_interval(right, 100, 0) == pytest.approx(np.percentile(drawn, (2.5, 97.5)), abs=0.004)
    low, high = wilson_interval(right.sum() / 8000, 8000)
    assert np.diff(np.percentile(drawn, (2.5, 97.5))) > 4 * (high - low)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    shares, held = RANDOM.choice([0.98, 0.5], (400, 80)), 0
    for seed, one in enumerate(shares):
        low, high = accuracy_interval(RANDOM.binomial(100, one), 100, seed) or (0.0, 0.0)
        held += low <= 0.74 <= high
    assert 0.91 <= held / 400 <= 0.99


@pytest.mark.parametrize(("right", "share"), [(4, 1.0), (0, 0.0), (2, 0.5)])
def test_examples_that_are_all_alike_count_once_each(right: int, share: float) -> None:
    low, high = accuracy_interval(np.full(50, right), 4, 0) or (0.0, 0.0)
    assert (low, high) == wilson_interval(share, 50)
    assert low <= share <= high
    assert high - low > 0.07


def test_wilsons_interval_is_the_published_one() -> None:
    assert wilson_interval(0.5, 100) == pytest.approx((0.4038, 0.5962), abs=1e-4)
    assert wilson_interval(1.0, 50) == pytest.approx((0.9287, 1.0), abs=1e-4)
    assert wilson_interval(0.0, 50) == pytest.approx((0.0, 0.0713), abs=1e-4)


def test_classes_on_test_have_an_accuracy_and_an_interval_over_examples() -> None:
    labels = np.zeros((3, 2), np.int64)
    found = class_scores(np.array([[0, 0], [0, 1], [1, 1]]), labels, 0)
    assert found == {"test_accuracy": 0.5, "test_interval": accuracy_interval(np.array([2, 1, 0]), 2, 0)}
    assert class_scores(labels[:0], labels[:0], 0) == {"test_accuracy": None, "test_interval": None}
