"""The k nearest training rows vote: a reference that trains nothing.

Similarity is the cosine between standardised rows, a vote weighs exp(similarity / 0.07) (Wu et al. 2018, as DINO's kNN
evaluation); the paper of FPT has no such reference. Training rows stream; only the best k of each query are kept.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32

from pipeline.probes.arrays import to_numpy
from pipeline.probes.rows import Source

TEMPERATURE = 0.07
QUERIES = 2048
"""Rows that are compared at a time: similarities to one block of training rows stay small."""


def nearest_scores(
    train: Source, queries: Float32[np.ndarray, "query feature"], neighbours: int
) -> Float32[np.ndarray, "query answer class"]:
    """The logarithm of each class's share of the votes; where answers are numbers, their mean weighted by the votes."""
    parts = [
        _part(train, _normalised(queries[start : start + QUERIES]), neighbours)
        for start in range(0, len(queries), QUERIES)
    ]
    return np.concatenate(parts)


def _part(
    train: Source, queries: Float32[np.ndarray, "query feature"], neighbours: int
) -> Float32[np.ndarray, "query answer class"]:
    answers = train.labels.shape[1]
    best = np.full((len(queries), 0), -np.inf, np.float32)
    labels = np.zeros((len(queries), 0, answers), np.int64 if train.classes else np.float64)
    for block in train:
        similar = np.concatenate([best, queries @ _normalised(to_numpy(block.x)).T], axis=1)
        count = min(neighbours, similar.shape[1])
        order = _top(similar, count)
        kept = best.shape[1]
        theirs = block.labels[np.maximum(order - kept, 0)]
        ours = np.take_along_axis(labels, np.minimum(order, max(kept - 1, 0))[:, :, None], axis=1) if kept else theirs
        labels = np.where((order < kept)[:, :, None], ours, theirs).astype(labels.dtype)
        best = np.take_along_axis(similar, order, axis=1)
    votes = np.exp((best - best.max(axis=1, keepdims=True)) / TEMPERATURE)
    if not train.classes:
        means = (votes[:, :, None] * labels).sum(axis=1) / votes.sum(axis=1, dtype=np.float64, keepdims=True)
        return means.astype(np.float32)[:, :, None]
    shares = np.full((len(queries), answers, train.classes), 1e-9, np.float32)
    rows, columns = np.arange(len(queries))[:, None, None], np.arange(answers)[None, None]
    np.add.at(shares, (rows, columns, labels.astype(np.int64)), votes[:, :, None])
    return np.log(shares / shares.sum(axis=2, keepdims=True))


def _top(similar: Float32[np.ndarray, "query row"], count: int) -> np.ndarray:
    """The `count` largest of each row, without sorting the rest."""
    return np.argpartition(-similar, count - 1, axis=1)[:, :count]


def _normalised(x: Float32[np.ndarray, "row feature"]) -> Float32[np.ndarray, "row feature"]:
    length = np.sqrt((x**2).sum(axis=1, keepdims=True))
    return x / np.maximum(length, 1e-12)
