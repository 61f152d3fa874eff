"""Ridge regression for every penalty from one eigendecomposition of the moments.

Features are standardised and targets centred by the moments themselves, so that rows are read once. With S the
features' correlation matrix and T their mean product with the targets, the loss ½ mean ‖xW + b − y‖² + λ/2 ‖W‖² has
its minimum at

    W = (S + λI)⁻¹ T.    With S = V diag(s) Vᵀ this is    W = V diag(1 / (s + λ)) Vᵀ T:

V, s and VᵀT are found once; each penalty is then a rescale of rows and one thin product (the same in Google's
big_vision, `fewshot_lsr`). As a classifier, targets are +1 for the class and −1 for the rest; the largest score wins.
The scores of one answer always add up to 2 − classes, so that a class without training rows (a constant −1) never wins.
Answers that are numbers are the targets themselves. Where rows have weights, all means are weighted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from pipeline.probes.linear import LinearModel
from pipeline.probes.moments import Moments
from pipeline.probes.rows import Standardisation


@dataclass(frozen=True)
class Spectrum:
    """Eigenvectors (columns) and eigenvalues of the correlation matrix of the features."""

    vectors: Float64[np.ndarray, "feature feature"]
    values: Float64[np.ndarray, "feature"]
    scale: Float64[np.ndarray, "feature"]

    @classmethod
    def of(cls, moments: Moments) -> Spectrum:
        """Constant features get a zero row and column."""
        scale = Standardisation.of(moments.mean, moments.spread).scale.astype(np.float64)
        values, vectors = np.linalg.eigh(moments.covariance * scale * scale[:, None])
        return cls(vectors, np.maximum(values, 0.0), scale)


def ridge_path(
    moments: Moments, spectrum: Spectrum, penalties: tuple[float, ...], classes: int
) -> list[tuple[float, LinearModel]]:
    """The least-squares model of each penalty, for standardised rows, the strongest first; numbers have no classes."""
    factor, shift = (2.0, 1.0) if classes else (1.0, 0.0)
    rotated = spectrum.vectors.T @ (factor * spectrum.scale[:, None] * moments.cross)
    bias = factor * moments.target_mean - shift
    return [
        (penalty, LinearModel(spectrum.vectors @ (rotated / (spectrum.values + penalty)[:, None]), bias, classes))
        for penalty in sorted(penalties, reverse=True)
    ]
