"""First and second moments of features and targets in one pass, summed up in float64.

A block's products run in float32 on rows from which the first row was taken: hidden states have features whose mean is
many times their spread, and their spread would be lost in a plain sum of squares. A feature that is constant gives
exactly zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, Float64, Integer


@dataclass(frozen=True)
class Moments:
    """Means over the rows: of features, of targets, and of their products, all about the mean.

    Targets are one column for each answer's class, 1 where the class is the answer and 0 elsewhere.
    """

    rows: int
    mean: Float64[np.ndarray, "feature"]
    covariance: Float64[np.ndarray, "feature feature"]
    target_mean: Float64[np.ndarray, "score"]
    cross: Float64[np.ndarray, "feature score"]

    @property
    def spread(self) -> Float64[np.ndarray, "feature"]:
        """Standard deviation of each feature, with the number of rows as divisor."""
        return np.sqrt(np.maximum(self.covariance.diagonal(), 0.0))


class MomentsFitter:
    """Takes rows block by block; `result` can be asked for at any time."""

    def __init__(self) -> None:
        self._rows = 0
        self._shift: np.ndarray | None = None
        self._sum: np.ndarray = np.zeros(0)
        self._squares: np.ndarray = np.zeros((0, 0))
        self._targets: np.ndarray = np.zeros(0)
        self._cross: np.ndarray = np.zeros((0, 0))

    def update(self, x: Float32[np.ndarray, "row feature"], y: Float[np.ndarray, "row score"]) -> MomentsFitter:
        """Add rows.

        Args:
            x: features.
            y: targets; see `targets` for those of a classifier.
        """
        if self._shift is None:
            width, scores = x.shape[1], y.shape[1]
            self._shift = x[0].copy()
            self._sum, self._squares = np.zeros(width), np.zeros((width, width))
            self._targets, self._cross = np.zeros(scores), np.zeros((scores, width))
        shifted, y = x - self._shift, y.astype(np.float32, copy=False)
        self._rows += len(x)
        self._sum += np.ones(len(x), np.float32) @ shifted
        self._targets += y.sum(axis=0, dtype=np.float64)
        self._cross += y.T @ shifted
        self._squares += shifted.T @ shifted  # of one array with itself: half the work, BLAS's `syrk`
        return self

    @property
    def result(self) -> Moments:
        """The moments of all rows so far.

        Raises:
            ValueError: there were none.
        """
        if self._shift is None:
            raise ValueError("moments of no rows")
        mean, targets = self._sum / self._rows, self._targets / self._rows
        return Moments(
            self._rows,
            self._shift + mean,
            self._squares / self._rows - np.outer(mean, mean),
            targets,
            self._cross.T / self._rows - np.outer(mean, targets),
        )


def targets(labels: Integer[np.ndarray, "row answer"], classes: int) -> Float32[np.ndarray, "row score"]:
    """One column for each answer's class: 1 for the answer, 0 for the others."""
    return np.eye(classes, dtype=np.float32)[labels].reshape(len(labels), -1)
