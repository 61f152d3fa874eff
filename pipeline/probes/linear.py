"""What every linear probe ends in: scores, and their loss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, Integer

from pipeline.probes.arrays import Array, like, to_numpy


@dataclass(frozen=True)
class LinearModel:
    """Scores `x @ weight + bias` of each answer's classes, the answers side by side.

    Without classes (`classes` is 0) a score is the answer itself.
    """

    weight: Float64[np.ndarray, "feature score"]
    bias: Float64[np.ndarray, "score"]
    classes: int

    @property
    def parameters(self) -> int:
        """How many numbers were trained."""
        return self.weight.size + self.bias.size

    def scores(self, x: Array) -> Float32[np.ndarray, "row answer class"]:
        """One score a class for rows `(row, feature)`; the largest wins."""
        flat = to_numpy(x @ like(x, self.weight)) + self.bias.astype(np.float32)
        return flat.reshape(len(x), -1, max(1, self.classes))

    def loss(self, x: Array, labels: Integer[np.ndarray, "row answer"]) -> float:
        """Mean cross-entropy of a row in nats, its answers added up, without the penalty."""
        log_p = np.take_along_axis(log_softmax(self.scores(x)), labels[:, :, None].astype(np.int64), axis=2)
        return -float(log_p.sum(dtype=np.float64)) / max(1, len(x))


def log_softmax(scores: Float32[np.ndarray, "row answer class"]) -> Float32[np.ndarray, "row answer class"]:
    """The logarithm of each class's probability."""
    shifted = scores - scores.max(axis=2, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=2, keepdims=True))
