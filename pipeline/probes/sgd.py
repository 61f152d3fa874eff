"""The probe exactly as the paper's (sect. 3.9): the output layer alone, Adam at 1e-3, epochs over the cache.

Features go in as they were cached, without standardisation; the layer starts as PyTorch's Linear does. Deviation: the
paper neither names the number of epochs nor whether the best one counts; here they are a parameter and the last counts.
Rows are shuffled within each block, so that an epoch reads the cache once and in its order.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32

from pipeline.probes.linear import LinearModel, log_softmax
from pipeline.probes.moments import targets
from pipeline.probes.rows import Source

LR, BETAS, EPSILON = 1e-3, (0.9, 0.999), 1e-8


def fit_sgd(source: Source, width: int, epochs: int, batch: int, seed: int) -> LinearModel:
    """Train for some epochs.

    Args:
        source: rows as they were cached.
        width: number of features.
        epochs: passes over the rows.
        batch: rows in a step.
        seed: of the start and of the order of rows.
    """
    generator, scores = np.random.default_rng(seed), source.labels.shape[1] * source.classes
    bound = 1 / np.sqrt(width)
    parameters = generator.uniform(-bound, bound, (width + 1, scores)).astype(np.float32)
    first, second, step = np.zeros_like(parameters), np.zeros_like(parameters), 0
    for _ in range(epochs):
        for block in source:
            order = generator.permutation(len(block.x))
            one_hot = targets(block.labels, source.classes)
            for start in range(0, len(order), batch):
                rows = order[start : start + batch]
                gradient = _gradient(parameters, block.x[rows], one_hot[rows], source.classes)
                step += 1
                first += (1 - BETAS[0]) * (gradient - first)
                second += (1 - BETAS[1]) * (gradient**2 - second)
                spread = np.sqrt(second / (1 - BETAS[1] ** step)) + EPSILON
                parameters -= (LR / (1 - BETAS[0] ** step)) * first / spread
    return LinearModel(parameters[:-1].astype(np.float64), parameters[-1].astype(np.float64), source.classes)


def _gradient(
    parameters: Float32[np.ndarray, "parameter score"],
    x: Float32[np.ndarray, "row feature"],
    one_hot: Float32[np.ndarray, "row score"],
    classes: int,
) -> Float32[np.ndarray, "parameter score"]:
    """Of the mean cross-entropy over rows and answers, as PyTorch's `cross_entropy` of the flattened scores."""
    scores = (x @ parameters[:-1] + parameters[-1]).reshape(len(x), -1, classes)
    error = np.exp(log_softmax(scores)).reshape(one_hot.shape) - one_hot
    error /= len(x) * scores.shape[1]
    return np.concatenate([x.T @ error, error.sum(axis=0, keepdims=True)])
