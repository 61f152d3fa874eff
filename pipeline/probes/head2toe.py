"""Features chosen from all cached layers at once: Head2Toe (Evci et al. 2022, arXiv 2201.03529).

All layers' features side by side go into one linear layer under a group lasso,

    mean cross-entropy + λ Σᵢ ‖Wᵢ‖₂,    Wᵢ the weights of feature i into all scores.

A feature's relevance is ‖Wᵢ‖₂ (sect. 3.2); the most relevant share is kept and a new probe is fitted to it without
the lasso. Deviations: the lasso is solved by proximal gradient with momentum (FISTA), a pass over the rows each, in
place of SGD; the readout is the store's, where the paper pools feature maps to some 10⁶ numbers.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64, Int64

from pipeline.probes.arrays import to_numpy
from pipeline.probes.cross_entropy import cross_entropy_pass
from pipeline.probes.linear import LinearModel
from pipeline.probes.rows import Source

POWER_PASSES = 8
MARGIN = 1.1
"""The power method finds the largest eigenvalue from below."""


def group_lasso(source: Source, penalty: float, iterations: int) -> LinearModel:
    """The layer under the group lasso after so many iterations; biases are free.

    Args:
        source: standardised rows.
        penalty: λ.
        iterations: passes over the rows, besides a few that find the length of a step.
    """
    scores = source.labels.shape[1] * source.classes
    weight, bias = np.zeros((source.width, scores)), np.zeros(scores)
    step = 1 / (MARGIN * smoothness(source))
    ahead, ahead_bias, momentum = weight, bias, 1.0
    for _ in range(iterations):
        found = cross_entropy_pass(source, ahead, ahead_bias)
        new = shrink(ahead - step * found.by_weight / found.rows, step * penalty)
        new_bias = ahead_bias - step * found.by_bias / found.rows
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        push = (momentum - 1) / following
        ahead, ahead_bias = new + push * (new - weight), new_bias + push * (new_bias - bias)
        weight, bias, momentum = new, new_bias, following
    return LinearModel(weight, bias, source.classes)


def shrink(weight: Float64[np.ndarray, "feature score"], by: float) -> Float64[np.ndarray, "feature score"]:
    """Each feature's weights made shorter by `by`, to zero where they are no longer than that."""
    length = relevance(weight)[:, None]
    return weight * np.maximum(0.0, 1 - by / np.maximum(length, 1e-300))


def relevance(weight: Float64[np.ndarray, "feature score"]) -> Float64[np.ndarray, "feature"]:
    """‖Wᵢ‖₂ of each feature."""
    return np.sqrt((weight**2).sum(axis=1))


def most_relevant(relevance: Float64[np.ndarray, "feature"], share: float) -> Int64[np.ndarray, "chosen"]:
    """The places of the most relevant share of features, at least one, in order; of equals the first."""
    count = max(1, round(share * len(relevance)))
    return np.sort(np.argsort(-relevance, kind="stable")[:count])


def smoothness(source: Source) -> float:
    """At most how much the gradient of the mean cross-entropy changes over a unit of W and b.

    Half the largest eigenvalue of the mean of [x, 1][x, 1]ᵀ (Böhning 1992), by the power method, times the largest
    class weight over their mean.
    """
    vector, size = np.random.default_rng(0).standard_normal(source.width + 1), 1.0
    for _ in range(POWER_PASSES):
        vector /= np.linalg.norm(vector)
        product = np.zeros_like(vector)
        for block in source:
            x = to_numpy(block.x)
            along = x @ vector[:-1].astype(np.float32) + np.float32(vector[-1])
            product[:-1] += along @ x
            product[-1] += along.sum(dtype=np.float64)
        vector = product / len(source)
        size = float(np.linalg.norm(vector))
    weights = source.class_weights
    heaviest = 1.0 if weights is None else float(weights.max() / weights[source.labels].mean())
    return 0.5 * size * heaviest
