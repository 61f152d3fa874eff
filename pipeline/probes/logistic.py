"""Multinomial logistic regression by L-BFGS, along a path of penalties.

The loss is mean cross-entropy + λ/2 ‖W‖², biases free (scikit-learn's C is 1 / (λ × rows)). A row may have several
answers, each with a softmax of its own over the classes; their cross-entropies add up. Products run in float32, sums
over rows in float64. The path goes from the strongest penalty to the weakest, each fit started from the last.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, Float64, Integer
from scipy.optimize import minimize

GRADIENT_TOLERANCE = 1e-4
"""A fit has converged when no entry of the loss's gradient is larger."""


@dataclass(frozen=True)
class Standardisation:
    """Mean and 1 / spread of the training rows; a constant feature becomes zero."""

    mean: Float32[np.ndarray, "feature"]
    scale: Float32[np.ndarray, "feature"]

    @classmethod
    def fit(cls, rows: Float[np.ndarray, "row feature"]) -> Standardisation:
        """Moments in float64, since features with a large mean lose their spread in float32."""
        mean, spread = rows.mean(axis=0, dtype=np.float64), rows.std(axis=0, dtype=np.float64)
        scale = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 1e-7 * np.abs(mean))
        return cls(mean.astype(np.float32), scale.astype(np.float32))

    def apply(self, rows: Float32[np.ndarray, "row feature"]) -> Float32[np.ndarray, "row feature"]:
        """Rows on the scale where the training rows have mean 0 and spread 1."""
        return (rows - self.mean) * self.scale


@dataclass(frozen=True)
class LinearModel:
    """Scores `x @ weight + bias` of each answer's classes, the answers side by side."""

    weight: Float64[np.ndarray, "feature score"]
    bias: Float64[np.ndarray, "score"]
    classes: int

    def scores(self, x: Float32[np.ndarray, "row feature"]) -> Float32[np.ndarray, "row answer class"]:
        """One score a class; the largest wins."""
        flat = x @ self.weight.astype(np.float32) + self.bias.astype(np.float32)
        return flat.reshape(len(x), -1, self.classes)

    def loss(self, x: Float32[np.ndarray, "row feature"], labels: Integer[np.ndarray, "row answer"]) -> float:
        """Mean cross-entropy of a row in nats, its answers added up, without the penalty."""
        log_p = np.take_along_axis(_log_softmax(self.scores(x)), labels[:, :, None].astype(np.int64), axis=2)
        return -float(log_p.sum(dtype=np.float64)) / max(1, len(x))


@dataclass(frozen=True)
class Fit:
    """One penalty's model, how many passes over the rows it took, and whether it converged."""

    penalty: float
    model: LinearModel
    epochs: int
    converged: bool


def fit_path(
    x: Float32[np.ndarray, "row feature"],
    labels: Integer[np.ndarray, "row answer"],
    classes: int,
    penalties: tuple[float, ...],
    iterations: int,
) -> list[Fit]:
    """One fit for each penalty, the strongest first.

    Args:
        x: standardised rows.
        labels: class numbers below `classes`.
        classes: number of classes; one that has no rows gets low scores.
        penalties: the values of λ.
        iterations: L-BFGS iterations at most for each; a fit that needs more is marked as not converged.
    """
    one_hot = np.eye(classes, dtype=np.float32)[labels]
    shape = (x.shape[1] + 1, labels.shape[1] * classes)
    flat = np.zeros(shape[0] * shape[1])
    path = []
    for penalty in sorted(penalties, reverse=True):
        options = {"maxiter": iterations, "gtol": GRADIENT_TOLERANCE, "ftol": 64 * np.finfo(float).eps, "maxcor": 20}
        found = minimize(_objective, flat, (x, one_hot, penalty), "L-BFGS-B", jac=True, options=options)
        flat = found.x
        parameters = flat.reshape(shape)
        model = LinearModel(parameters[:-1].copy(), parameters[-1].copy(), classes)
        path.append(Fit(penalty, model, int(found.nfev), bool(np.abs(found.jac).max() <= GRADIENT_TOLERANCE)))
    return path


def _objective(
    flat: Float64[np.ndarray, "parameter"],
    x: Float32[np.ndarray, "row feature"],
    one_hot: Float32[np.ndarray, "row answer class"],
    penalty: float,
) -> tuple[float, Float64[np.ndarray, "parameter"]]:
    """The loss and its gradient: with P = softmax(XW + b) and targets Y, ∇W = Xᵀ(P − Y) / rows + λW."""
    parameters = flat.reshape(x.shape[1] + 1, -1)
    weight = parameters[:-1]
    log_p = _log_softmax(LinearModel(weight, parameters[-1], one_hot.shape[2]).scores(x))
    loss = -float((log_p * one_hot).sum(dtype=np.float64)) / len(x)
    error = (np.exp(log_p) - one_hot).reshape(len(x), -1)
    gradient = np.empty_like(parameters)
    gradient[:-1] = (x.T @ error) / len(x) + penalty * weight
    gradient[-1] = error.mean(axis=0, dtype=np.float64)
    return loss + penalty / 2 * float((weight**2).sum()), gradient.reshape(-1)


def _log_softmax(scores: Float32[np.ndarray, "row answer class"]) -> Float32[np.ndarray, "row answer class"]:
    shifted = scores - scores.max(axis=2, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=2, keepdims=True))
