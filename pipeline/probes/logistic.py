"""Multinomial logistic regression by L-BFGS, along a path of penalties, over rows that need not fit in memory.

The loss is mean cross-entropy + λ/2 ‖W‖², biases free (scikit-learn's C is 1 / (λ × rows)). A row may have several
answers, each with a softmax of its own over the classes; their cross-entropies add up. Products run in float32, sums
over blocks in float64. The path goes from the strongest penalty to the weakest, each fit started where a line through
the last two, over log λ, points to.

L-BFGS does not move W but U, with W = V diag(1 / √(c s + λ)) U, where V diag(s) Vᵀ is the correlation matrix of the
features and c the mean of p (1 − p) where the last fit ended: the loss's Hessian is about c S + λ (at most ½ S + λ,
Böhning 1992). In U it is near the identity, whatever the features' correlations, and half the squared gradient, the
Newton decrement, estimates how far the loss is above its minimum: that is where a fit stops.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from scipy.optimize import minimize

from pipeline.probes.linear import LinearModel, log_softmax
from pipeline.probes.moments import targets
from pipeline.probes.ridge import Spectrum
from pipeline.probes.rows import Source

PIECE_BYTES = 3 << 17
DECREMENT_TOLERANCE = 3e-6
"""A fit has converged when its loss is estimated to be at most this far above the minimum, in nats."""


@dataclass(frozen=True)
class Fit:
    """One penalty's model, how many passes over the rows it took, and whether it converged."""

    penalty: float
    model: LinearModel
    epochs: int
    converged: bool


class Objective:
    """The loss of one penalty and its gradient, in the coordinates U, summed over blocks."""

    def __init__(self, source: Source, spectrum: Spectrum, penalty: float, curvature: float) -> None:
        self.source, self.penalty, self.vectors = source, penalty, spectrum.vectors
        curvature = max(curvature, 1e-6)
        self.root = np.sqrt(curvature * spectrum.values + penalty)[:, None]
        self.bias_root = curvature**0.5
        self.scores = source.labels.shape[1] * source.classes
        self.epochs, self.decrement, self.curvature = 0, np.inf, curvature

    def coordinates(self, model: LinearModel) -> Float64[np.ndarray, "parameter"]:
        """U of a model."""
        return np.concatenate([(self.vectors.T @ model.weight) * self.root, model.bias[None] * self.bias_root]).ravel()

    def model(self, flat: Float64[np.ndarray, "parameter"]) -> LinearModel:
        """The model at U."""
        u = flat.reshape(-1, self.scores)
        return LinearModel(self.vectors @ (u[:-1] / self.root), u[-1] / self.bias_root, self.source.classes)

    def _pieces(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Rows and their targets, so few at a time that both products find them in the processor's cache."""
        step = max(16, PIECE_BYTES // (4 * len(self.vectors)))
        for block in self.source:
            one_hot = targets(block.labels, self.source.classes)
            for start in range(0, len(block.x), step):
                yield block.x[start : start + step], one_hot[start : start + step]

    def __call__(self, flat: Float64[np.ndarray, "parameter"]) -> tuple[float, Float64[np.ndarray, "parameter"]]:
        """With P = softmax(XW + b) and targets Y, ∇W = Xᵀ(P − Y) / rows + λW."""
        model, rows = self.model(flat), len(self.source)
        squares, loss, by_weight, by_bias = 0.0, 0.0, np.zeros_like(model.weight), np.zeros_like(model.bias)
        weight, bias = model.weight.astype(np.float32), model.bias.astype(np.float32)
        for x, one_hot in self._pieces():
            log_p = log_softmax((x @ weight + bias).reshape(len(x), -1, model.classes))
            error = np.exp(log_p).reshape(one_hot.shape)
            loss -= float(np.vdot(log_p, one_hot))
            squares += float(np.vdot(error, error))
            error -= one_hot
            by_weight += x.T @ error
            by_bias += error.sum(axis=0, dtype=np.float64)
        gradient = np.empty((len(by_weight) + 1, self.scores))
        gradient[:-1] = self.vectors.T @ (by_weight / rows + self.penalty * model.weight) / self.root
        gradient[-1] = by_bias / rows / self.bias_root
        self.epochs, self.decrement = self.epochs + 1, float((gradient**2).sum()) / 2
        self.curvature = (1 - squares / (rows * len(model.bias) / model.classes)) / model.classes
        return loss / rows + self.penalty / 2 * float((model.weight**2).sum()), gradient.ravel()


def fit_path(source: Source, spectrum: Spectrum, penalties: tuple[float, ...], iterations: int) -> list[Fit]:
    """One fit for each penalty, the strongest first.

    Args:
        source: standardised rows; a class that has none gets low scores.
        spectrum: of their features.
        penalties: the values of λ.
        iterations: L-BFGS iterations at most for each; a fit that needs more is marked as not converged.
    """
    width, scores = len(spectrum.values), source.labels.shape[1] * source.classes
    model = LinearModel(np.zeros((width, scores)), np.zeros(scores), source.classes)
    curvature = (1 - 1 / source.classes) / source.classes
    path: list[Fit] = []
    for penalty in sorted(penalties, reverse=True):
        objective = Objective(source, spectrum, penalty, curvature)
        start = objective.coordinates(_ahead(path, penalty) if len(path) > 1 else model)

        def stop(_: Float64[np.ndarray, "parameter"], objective: Objective = objective) -> None:
            if objective.decrement <= DECREMENT_TOLERANCE:
                raise StopIteration

        options = {"maxiter": iterations, "gtol": 0.0, "ftol": 0.0, "maxcor": 20}
        found = minimize(objective, start, (), "L-BFGS-B", True, options=options, callback=stop)
        model, curvature = objective.model(found.x), objective.curvature
        decrement = float((found.jac**2).sum()) / 2
        path.append(Fit(penalty, model, objective.epochs, decrement <= DECREMENT_TOLERANCE))
    return path


def _ahead(path: list[Fit], penalty: float) -> LinearModel:
    """Where the path is going: the line through its last two models, over the logarithm of the penalty."""
    before, last = path[-2], path[-1]
    passed = np.log(before.penalty / last.penalty)
    step = np.log(last.penalty / penalty) / passed if passed > 0 else 0.0
    weight = last.model.weight + step * (last.model.weight - before.model.weight)
    return LinearModel(weight, last.model.bias + step * (last.model.bias - before.model.bias), last.model.classes)
