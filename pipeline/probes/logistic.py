"""Multinomial logistic regression by L-BFGS, along a path of penalties, over rows that need not fit in memory.

The loss is mean cross-entropy + λ/2 ‖W‖², biases free (scikit-learn's C is 1 / (λ × rows)). A row may have several
answers, each with a softmax of its own over the classes; their cross-entropies add up. Products run in float32, sums
over blocks in float64. The path goes from the strongest penalty to the weakest, each fit started from the last.

L-BFGS does not move W but U, with W = V diag(1 / √(c s + λ)) U, where V diag(s) Vᵀ is the correlation matrix of the
features: the loss's Hessian is at most ½ S + λ (Böhning 1992) and about c S + λ with c = (1 − 1/classes) / classes
where nothing is known yet. In U it is near the identity, whatever the features' correlations, and half the squared
gradient, the Newton decrement, estimates how far the loss is above its minimum: that is where a fit stops.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from scipy.optimize import minimize

from pipeline.probes.linear import LinearModel, log_softmax
from pipeline.probes.moments import targets
from pipeline.probes.ridge import Spectrum
from pipeline.probes.rows import Source

DECREMENT_TOLERANCE = 1e-6
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

    def __init__(self, source: Source, spectrum: Spectrum, penalty: float) -> None:
        self.source, self.penalty, self.vectors = source, penalty, spectrum.vectors
        curvature = (1 - 1 / source.classes) / source.classes
        self.root = np.sqrt(curvature * spectrum.values + penalty)[:, None]
        self.bias_root = max(curvature, 1e-3) ** 0.5
        self.scores = source.labels.shape[1] * source.classes
        self.epochs, self.decrement = 0, np.inf

    def coordinates(self, model: LinearModel) -> Float64[np.ndarray, "parameter"]:
        """U of a model."""
        return np.concatenate([(self.vectors.T @ model.weight) * self.root, model.bias[None] * self.bias_root]).ravel()

    def model(self, flat: Float64[np.ndarray, "parameter"]) -> LinearModel:
        """The model at U."""
        u = flat.reshape(-1, self.scores)
        return LinearModel(self.vectors @ (u[:-1] / self.root), u[-1] / self.bias_root, self.source.classes)

    def __call__(self, flat: Float64[np.ndarray, "parameter"]) -> tuple[float, Float64[np.ndarray, "parameter"]]:
        """With P = softmax(XW + b) and targets Y, ∇W = Xᵀ(P − Y) / rows + λW."""
        model, rows = self.model(flat), len(self.source)
        loss, by_weight, by_bias = 0.0, np.zeros_like(model.weight), np.zeros_like(model.bias)
        for block in self.source:
            log_p = log_softmax(model.scores(block.x))
            error = np.exp(log_p).reshape(len(log_p), -1)
            one_hot = targets(block.labels, self.source.classes)
            loss -= float(np.vdot(log_p.reshape(error.shape), one_hot))
            error -= one_hot
            by_weight += block.x.T @ error
            by_bias += error.sum(axis=0, dtype=np.float64)
        gradient = np.empty((len(by_weight) + 1, self.scores))
        gradient[:-1] = self.vectors.T @ (by_weight / rows + self.penalty * model.weight) / self.root
        gradient[-1] = by_bias / rows / self.bias_root
        self.epochs, self.decrement = self.epochs + 1, float((gradient**2).sum()) / 2
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
    path = []
    for penalty in sorted(penalties, reverse=True):
        objective = Objective(source, spectrum, penalty)

        def stop(_: Float64[np.ndarray, "parameter"], objective: Objective = objective) -> None:
            if objective.decrement <= DECREMENT_TOLERANCE:
                raise StopIteration

        options = {"maxiter": iterations, "gtol": 0.0, "ftol": 0.0, "maxcor": 20}
        found = minimize(objective, objective.coordinates(model), (), "L-BFGS-B", True, options=options, callback=stop)
        model = objective.model(found.x)
        decrement = float((found.jac**2).sum()) / 2
        path.append(Fit(penalty, model, objective.epochs, decrement <= DECREMENT_TOLERANCE))
    return path
