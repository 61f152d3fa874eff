"""Multinomial logistic regression by L-BFGS, along a path of penalties, over rows that need not fit in memory.

The loss is mean cross-entropy + λ/2 ‖W‖², biases free (scikit-learn's C is 1 / (λ × rows)); where classes have
weights, so has the mean, as there. The path goes from the strongest penalty to the weakest, each fit started where a
line through the last two, over log λ, points to.

L-BFGS does not move W but U, with W = V diag(1 / √(c s + λ)) U, where V diag(s) Vᵀ is the correlation matrix of the
features and c the mean of p (1 − p) where the last fit ended: the loss's Hessian is about c S + λ (at most ½ S + λ,
Böhning 1992). In U it is near the identity, whatever the features' correlations, and half the squared gradient, the
Newton decrement, estimates how far the loss is above its minimum: that is where a fit stops.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from scipy.optimize import minimize

from pipeline.probes.cross_entropy import cross_entropy_pass
from pipeline.probes.linear import LinearModel
from pipeline.probes.ridge import Spectrum
from pipeline.probes.rows import Source

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

    def __call__(self, flat: Float64[np.ndarray, "parameter"]) -> tuple[float, Float64[np.ndarray, "parameter"]]:
        """With P = softmax(XW + b) and targets Y, ∇W = Xᵀ(P − Y) / rows + λW."""
        model = self.model(flat)
        found = cross_entropy_pass(self.source, model.weight, model.bias)
        gradient = np.empty((len(model.weight) + 1, self.scores))
        gradient[:-1] = self.vectors.T @ (found.by_weight / found.rows + self.penalty * model.weight) / self.root
        gradient[-1] = found.by_bias / found.rows / self.bias_root
        self.epochs, self.decrement = self.epochs + 1, float((gradient**2).sum()) / 2
        self.curvature = (1 - found.squares / self.source.labels.size) / model.classes
        return found.loss / found.rows + self.penalty / 2 * float((model.weight**2).sum()), gradient.ravel()


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
