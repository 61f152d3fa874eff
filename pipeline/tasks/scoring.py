"""How an answer is judged: classes by accuracy, numbers by squared error, explained variance and rank correlation.

Sums run in float64. What is not defined is None, never NaN: a score of nothing, R² of targets that do not vary.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Float64, Integer, Num

RESAMPLES = 2000
"""Of a bootstrap interval."""
Z_LOW, Z_HIGH = 2.5, 97.5
Z = 1.959963984540054
"""Standard deviations to either end of a 95 % interval."""

Numbers = Num[np.ndarray, "example answer"]


def accuracy(
    predicted: Integer[np.ndarray, "example answer"], labels: Integer[np.ndarray, "example answer"]
) -> float | None:
    """The share of answers that are right, every answer of an example counted alone (the paper's per-bit accuracy).

    None when there is nothing to judge.
    """
    return float(np.mean(predicted == labels)) if labels.size else None


def accuracy_interval(right: Integer[np.ndarray, " example"], answers: int, seed: int) -> tuple[float, float] | None:
    """The 95 % bootstrap interval of the accuracy; whole examples are drawn, since their answers hang together.

    Examples with equally many right answers are alike, so a resample is one draw of how often each number occurs. Where
    all are alike, as in a perfect score, every resample is the same and the interval is Wilson's for so many examples.

    Args:
        right: how many answers of each example are right.
        answers: of one example.
        seed: of the bootstrap.
    """
    examples = len(right)
    if not examples:
        return None
    counts = np.bincount(right, minlength=answers + 1)
    if counts.max() == examples:
        return wilson_interval(int(right[0]) / answers, examples)
    drawn = np.random.default_rng(seed).multinomial(examples, counts / examples, size=RESAMPLES)
    low, high = np.percentile(drawn @ np.arange(answers + 1) / (answers * examples), (Z_LOW, Z_HIGH))
    return float(low), float(high)


def wilson_interval(share: float, count: int) -> tuple[float, float]:
    """The 95 % interval of a share of so many independent draws, by Wilson's score (1927); the share lies in it."""
    center = share + Z * Z / (2 * count)
    spread = Z * math.sqrt(share * (1 - share) / count + Z * Z / (4 * count * count))
    scale = 1 + Z * Z / count
    low, high = (center - spread) / scale, (center + spread) / scale
    return min(share, max(0.0, low)), max(share, min(1.0, high))


class SquaredErrors:
    """A predictor's squared errors and the targets' own spread, added up block by block.

    The spread is summed about the first example, so that targets that are all equal have exactly none.
    """

    def __init__(self) -> None:
        self.examples, self.errors, self.spread = 0, 0.0, 0.0
        self._first = self._sum = np.zeros(0)

    def update(self, predicted: Numbers, targets: Numbers) -> SquaredErrors:
        """Add some examples."""
        if not len(targets):
            return self
        if not self.examples:
            self._first = targets[0].astype(np.float64)
            self._sum = np.zeros_like(self._first)
        about = targets.astype(np.float64) - self._first
        self.examples += len(targets)
        self.errors += float(((predicted.astype(np.float64) - targets) ** 2).sum())
        self.spread += float((about**2).sum())
        self._sum = self._sum + about.sum(axis=0)
        return self

    @property
    def mse(self) -> float | None:
        """The mean squared error of an answer, in the targets' unit squared; None without examples."""
        return self.errors / (self.examples * len(self._first)) if self.examples else None

    @property
    def r2(self) -> float | None:
        """The share of the targets' variance that is explained, each answer about its own mean; None without variance.

        1 − Σ (prediction − target)² / Σ (target − mean)², the sums over examples and answers.
        """
        spread = self.spread - float((self._sum**2).sum()) / self.examples if self.examples else 0.0
        return 1 - self.errors / spread if spread > 0 else None


def mse(predicted: Numbers, targets: Numbers) -> float | None:
    """The mean squared error of an answer; see `SquaredErrors`."""
    return SquaredErrors().update(predicted, targets).mse


def r2(predicted: Numbers, targets: Numbers) -> float | None:
    """The share of the targets' variance that is explained; see `SquaredErrors`."""
    return SquaredErrors().update(predicted, targets).r2


def spearman(predicted: Numbers, targets: Numbers) -> float | None:
    """Spearman's rank correlation, TAPE's score of its regression tasks; the mean over answers.

    Equal values share a rank. None where predictions or targets do not vary.
    """
    found = [_rank_correlation(*columns) for columns in zip(predicted.T, targets.T, strict=True)]
    known = [one for one in found if one is not None]
    return float(np.mean(known)) if known and len(known) == len(found) else None


def _rank_correlation(one: np.ndarray, other: np.ndarray) -> float | None:
    if not len(one):
        return None
    x, y = (ranks - ranks.mean() for ranks in (_ranks(one), _ranks(other)))
    size = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / size if size > 0 else None


def _ranks(values: Num[np.ndarray, " example"]) -> Float64[np.ndarray, " example"]:
    """Each value's place from 1, the mean of their places where several are equal."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[which]


def r2_interval(predicted: Numbers, targets: Numbers, seed: int) -> tuple[float, float] | None:
    """The 95 % bootstrap interval of R²; whole examples are drawn, and each draw's targets have a mean of their own.

    Draws whose targets do not vary have no R² and are left out; None where there is no other.
    """
    if r2(predicted, targets) is None:
        return None
    count, generator = len(targets), np.random.default_rng(seed)
    about = targets.astype(np.float64) - targets[0]
    errors = ((predicted.astype(np.float64) - targets) ** 2).sum(axis=1, keepdims=True)
    sums = np.concatenate([errors, (about**2).sum(axis=1, keepdims=True), about], axis=1)
    found = []
    for _ in range(RESAMPLES):
        times = np.bincount(generator.integers(0, count, count), minlength=count)
        error, squares, *each = times @ sums
        spread = squares - np.square(each).sum() / count
        if spread > 1e-12 * squares:  # less is rounding
            found.append(1 - error / spread)
    if not found:
        return None
    low, high = np.percentile(found, (Z_LOW, Z_HIGH))
    return float(low), float(high)


def class_scores(
    predicted: Integer[np.ndarray, "example answer"], labels: Integer[np.ndarray, "example answer"], seed: int
) -> dict[str, Any]:
    """What metrics say of class numbers on test: accuracy with its interval."""
    right = (predicted == labels).sum(axis=1)
    return {
        "test_accuracy": accuracy(predicted, labels),
        "test_interval": accuracy_interval(right, labels.shape[1], seed),
    }


def number_scores(predicted: Numbers, targets: Numbers, seed: int) -> dict[str, Any]:
    """What metrics say of predictions on test: R² with its interval, mean squared error, Spearman's correlation."""
    return {
        "test_r2": r2(predicted, targets),
        "test_interval": r2_interval(predicted, targets, seed),
        "test_mse": mse(predicted, targets),
        "test_spearman": spearman(predicted, targets),
    }
