"""First and second moments of features and targets in one pass, summed up in float64.

They are one symmetric product, of the rows [x, y, 1] with themselves. It runs in float32 on rows from which the first
row was taken: hidden states have features whose mean is many times their spread, and their spread would be lost in a
plain sum of squares. A feature that is constant gives exactly zero.

Blocks add up to pieces of `PIECE_BLOCKS`, pieces to the whole, always in order: a piece can be summed on another
machine and the total has the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, Num

from pipeline.probes.arrays import Array, empty, library, like, to_numpy
from pipeline.probes.rows import Source

PIECE_BLOCKS = 16
ALIGNED = 16
"""Rows of the product's buffer are a multiple of so many numbers long: 64 bytes."""


@dataclass(frozen=True)
class Moments:
    """Means over the rows, weighted where rows have weights: of features, of targets, of their products about the mean.

    Targets are one column for each answer's class, 1 where the class is the answer and 0 elsewhere, or the answer
    itself where it is a number.
    """

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

    def __init__(self, first: Float32[np.ndarray, "column"] | None = None) -> None:
        """`first` is what is taken from each row's [x, y]; by default the first row that comes."""
        self._first = first
        self._width = 0
        self._total: np.ndarray | None = None
        self._piece: np.ndarray | None = None
        self._blocks = 0
        self._buffer: Array = None

    def update(self, x: Array, y: Num[np.ndarray, "row score"], weights: np.ndarray | None = None) -> MomentsFitter:
        """Add rows.

        Args:
            x: features `(row, feature)` in float32.
            y: targets; see `targets` for those of a classifier.
            weights: of the rows; all 1 when None.
        """
        rows, self._width, scores = len(x), x.shape[1], y.shape[1]
        if self._first is None:
            self._first = np.concatenate([to_numpy(x[0]), y[0]]).astype(np.float32)
        used = self._width + scores + 1
        if self._buffer is None or len(self._buffer) < rows:
            self._buffer = empty(x, rows, -(-used // ALIGNED) * ALIGNED)
            self._buffer[:, used:] = 0
        buffer, first = self._buffer[:rows], like(x, self._first)
        library(x).subtract(x, first[: self._width], out=buffer[:, : self._width])
        buffer[:, self._width : used - 1] = like(x, y) - first[self._width :]
        buffer[:, used - 1] = 1
        if weights is not None:
            buffer *= like(x, np.sqrt(weights))[:, None]
        if self._piece is None:
            self._piece = np.zeros((used, used))
        self._piece += to_numpy(buffer.T @ buffer)[:used, :used]  # of one array with itself: half the work, `syrk`
        self._blocks += 1
        if self._blocks % PIECE_BLOCKS == 0:
            self.add_piece(self._piece, self._width)
            self._piece = None
        return self

    @property
    def sums(self) -> Float64[np.ndarray, "column column"]:
        """The products of [x − first, y − first, 1] with themselves, added up.

        Raises:
            ValueError: there were no rows.
        """
        parts = [part for part in (self._total, self._piece) if part is not None]
        if not parts:
            raise ValueError("moments of no rows")
        return parts[0] + parts[1] if len(parts) > 1 else parts[0]

    def add_piece(self, sums: Float64[np.ndarray, "column column"], width: int) -> None:
        """Add the `sums` of a whole piece, made by another fitter with the same `first`; pieces come in order."""
        self._width, self._total = width, sums if self._total is None else self._total + sums

    @property
    def result(self) -> Moments:
        """The moments of all rows so far.

        Raises:
            ValueError: there were none.
        """
        sums, width = self.sums, self._width
        assert self._first is not None
        means = sums[-1] / sums[-1, -1]
        mean, target = means[:width], means[width:-1]
        covariance = sums[:width, :width] / sums[-1, -1] - np.outer(mean, mean)
        cross = sums[:width, width:-1] / sums[-1, -1] - np.outer(mean, target)
        return Moments(self._first[:width] + mean, covariance, self._first[width:] + target, cross)


def source_moments(source: Source) -> Moments:
    """The moments of rows in memory or streaming, in one pass.

    Raises:
        ValueError: there are none.
    """
    fitter = MomentsFitter()
    for block in source:
        fitter.update(block.x, targets(block.labels, source.classes), block.row_weights)
    return fitter.result


def targets(labels: Num[np.ndarray, "row answer"], classes: int) -> Float32[np.ndarray, "row score"]:
    """One column for each answer's class, 1 for the answer and 0 for the others; without classes the answers."""
    if not classes:
        return labels.astype(np.float32)
    return np.eye(classes, dtype=np.float32)[labels].reshape(len(labels), -1)
