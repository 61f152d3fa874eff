"""How models do on a split, in one pass over it: accuracy, loss, confusion, calibration, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64, Integer

from pipeline.probes.arrays import Array
from pipeline.probes.linear import LinearModel, log_softmax
from pipeline.probes.rows import Source
from pipeline.tasks.scoring import accuracy_interval

BINS = 15
"""Of the calibration error, as in Guo et al. 2017."""


@dataclass(frozen=True)
class Judged:
    """One model on one split.

    `confusion[i, j]` counts answers of class i taken for class j; `right` counts the right answers of each example;
    `loss` is the mean cross-entropy of a row in nats, its answers added up.
    """

    loss: float
    confusion: Int64[np.ndarray, "class class"]
    calibration: Float64[np.ndarray, "bin count"]
    right: Int64[np.ndarray, "example"]
    answers: int

    @property
    def accuracy(self) -> float | None:
        """The share of answers that are right; None when there are none."""
        total = int(self.confusion.sum())
        return int(self.confusion.trace()) / total if total else None

    @property
    def class_accuracy(self) -> list[float | None]:
        """The share of right answers of each class; None for one that the split does not have."""
        totals = self.confusion.sum(axis=1)
        return [int(hits) / int(n) if n else None for hits, n in zip(self.confusion.diagonal(), totals, strict=True)]

    @property
    def calibration_error(self) -> float | None:
        """Expected calibration error (Guo et al. 2017, eq. 3): how far confidence is from accuracy, bin by bin."""
        counts, confidence, hits = self.calibration.T
        total = counts.sum()
        return float(np.abs(confidence - hits).sum() / total) if total else None

    def interval(self, seed: int) -> tuple[float, float] | None:
        """The 95 % interval of the accuracy, over examples; see `accuracy_interval`."""
        return accuracy_interval(self.right, self.answers // max(1, len(self.right)), seed)


class Judge:
    """Adds up one model's scores block by block."""

    def __init__(self, classes: int) -> None:
        self.classes, self.loss = classes, 0.0
        self.confusion = np.zeros((classes, classes), np.int64)
        self.bins = np.zeros((BINS, 3))
        self.right: list[np.ndarray] = []

    def update(self, scores: np.ndarray, labels: Integer[np.ndarray, "row answer"]) -> None:
        """Add rows with scores of shape `(row, answer, class)`."""
        log_p, labels = log_softmax(scores), labels.astype(np.int64)
        predicted = scores.argmax(axis=2)
        hits = predicted == labels
        self.loss -= float(np.take_along_axis(log_p, labels[:, :, None], axis=2).sum(dtype=np.float64))
        pairs = np.bincount((labels * self.classes + predicted).ravel(), minlength=self.classes**2)
        self.confusion += pairs.reshape(self.classes, self.classes)
        confidence = np.exp(log_p.max(axis=2)).astype(np.float64)
        place = np.minimum((confidence * BINS).astype(np.int64), BINS - 1).ravel()
        for column, weights in enumerate((None, confidence.ravel(), hits.ravel())):
            self.bins[:, column] += np.bincount(place, weights, minlength=BINS)
        self.right.append(hits.sum(axis=1))

    def result(self, rows: int, readout: int) -> Judged:
        """What was seen; `readout` rows in turn are one example."""
        right = np.concatenate([np.zeros(0, np.int64), *self.right]).reshape(-1, readout).sum(axis=1)
        return Judged(
            self.loss / max(1, rows), self.confusion, self.bins, right.astype(np.int64), int(self.confusion.sum())
        )


Scorer = Callable[[Array], np.ndarray]
"""Rows `(row, feature)` to scores `(row, answer, class)`."""


def judge(scorers: Sequence[Scorer], source: Source, readout: int = 1) -> list[Judged]:
    """Judge several models in one pass over a split."""
    judges = [Judge(source.classes) for _ in scorers]
    for block in source:
        for scorer, one in zip(scorers, judges, strict=True):
            one.update(scorer(block.x), block.labels)
    return [one.result(len(source), readout) for one in judges]


@dataclass(frozen=True)
class Score:
    """What a choice goes by: how many answers, the share that is right, and the loss as in `Judged`."""

    answers: int
    accuracy: float | None
    loss: float


def score_path(models: Sequence[LinearModel], source: Source) -> list[Score]:
    """Accuracy and loss of linear models of equal shape, with a single product a block."""
    together = LinearModel(
        np.concatenate([model.weight for model in models], axis=1),
        np.concatenate([model.bias for model in models]),
        source.classes,
    )
    right, loss = np.zeros(len(models), np.int64), np.zeros(len(models))
    for block in source:
        scores = together.scores(block.x).reshape(len(block.x), len(models), -1, source.classes)
        labels = block.labels.astype(np.int64)[:, None]
        right += (scores.argmax(axis=3) == labels).sum(axis=(0, 2))
        picked = np.take_along_axis(scores, np.broadcast_to(labels, scores.shape[:3])[..., None], axis=3)[..., 0]
        largest = scores.max(axis=3)
        scores -= largest[..., None]
        norms = np.log(np.exp(scores, out=scores) @ np.ones(source.classes, np.float32))
        loss += (norms + largest - picked).sum(axis=(0, 2), dtype=np.float64)
    answers = source.labels.size
    return [
        Score(answers, int(hits) / answers if answers else None, float(lost) / max(1, len(source)))
        for hits, lost in zip(right, loss, strict=True)
    ]


def details(judged: Judged, seed: int, probabilities: bool = True) -> dict[str, Any]:
    """What the metrics say of the model that was chosen; without probabilities there is no calibration."""
    return {
        "test_accuracy": judged.accuracy,
        "test_interval": judged.interval(seed),
        "test_loss": judged.loss if probabilities and judged.answers else None,
        "calibration_error": judged.calibration_error if probabilities else None,
        "class_accuracy": judged.class_accuracy,
        "confusion": judged.confusion.tolist(),
    }
