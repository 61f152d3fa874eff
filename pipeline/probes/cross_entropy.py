"""The loss of multinomial logistic regression and its gradient, in one pass over the rows.

A row may have several answers, each with a softmax of its own over the classes; their cross-entropies add up. Products
run in float32, sums over blocks in float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from pipeline.probes.arrays import Array, library, like, to_numpy
from pipeline.probes.moments import targets
from pipeline.probes.rows import Block, Source

PIECE_BYTES, MOST_BYTES = 3 << 17, 2 << 20
"""Of rows that are worked on at a time on a processor, so that both products find them in its cache."""
SMALL_PRODUCT = 10**6
"""rows × features × scores up to which OpenBLAS multiplies in place, without packing: twice as fast when few scores."""
SAFE = 60.0
"""Scores within this need no shift before `exp`: neither it nor a sum of it leaves float32."""


@dataclass
class Pass:
    """Sums over rows: what they weigh, the loss, its gradient, and the squares of the probabilities given."""

    by_weight: Float64[np.ndarray, "feature score"]
    by_bias: Float64[np.ndarray, "score"]
    loss: float = 0.0
    squares: float = 0.0
    rows: float = 0.0


def cross_entropy_pass(
    source: Source, weight: Float64[np.ndarray, "feature score"], bias: Float64[np.ndarray, "score"]
) -> Pass:
    """With P = softmax(XW + b) and targets Y, both weighted: Σ −Y log P, and its gradient Xᵀ(P − Y)."""
    total = Pass(np.zeros_like(weight), np.zeros_like(bias))
    for block in source:
        _add(total, block, like(block.x, weight), like(block.x, bias), source.classes)
    return total


def _add(total: Pass, block: Block, weight: Array, bias: Array, classes: int) -> None:
    y = like(block.x, targets(block.labels, classes)).reshape(len(block.x), -1, classes)
    weights = None if block.weights is None else like(block.x, block.weights)
    row_weights = block.row_weights
    total.rows += len(block.x) if row_weights is None else float(row_weights.sum(dtype=np.float64))
    step = piece_rows(*weight.shape) if isinstance(block.x, np.ndarray) else len(block.x)
    xp, bias, ones = library(block.x), bias.reshape(-1, classes), like(block.x, np.ones(classes))
    errors = xp.empty_like(y)
    norms = xp.empty_like(like(block.x, block.labels))
    for start in range(0, len(block.x), step):
        here = slice(start, start + step)
        x, one_hot, p, norm = block.x[here], y[here], errors[here], norms[here]
        scores = (x @ weight).reshape(one_hot.shape)
        scores += bias
        if not (scores.max() < SAFE and scores.min() > -SAFE):
            scores -= xp.amax(scores, axis=-1, keepdims=True)
        picked = scores if weights is None else scores * weights[here, :, None]
        total.loss -= float(xp.vdot(picked.reshape(-1), one_hot.reshape(-1)))
        xp.exp(scores, out=p)
        xp.matmul(p, ones, out=norm)
        p /= norm[:, :, None]
        total.squares += float(xp.vdot(p.reshape(-1), p.reshape(-1)))
        p -= one_hot
        if weights is not None:
            p *= weights[here, :, None]
        total.by_weight += to_numpy(x.T @ p.reshape(len(x), -1))
    log_norms = xp.log(norms) if weights is None else xp.log(norms) * weights
    total.loss += float(xp.sum(log_norms, dtype=xp.float64))
    total.by_bias += to_numpy(xp.sum(errors.reshape(len(block.x), -1), axis=0, dtype=xp.float64))


def piece_rows(width: int, scores: int) -> int:
    """How many rows are worked on at a time on a processor."""
    wanted = max(PIECE_BYTES // (4 * width), SMALL_PRODUCT // (width * scores))
    return max(16, min(wanted, MOST_BYTES // (4 * width)) // 16 * 16)
