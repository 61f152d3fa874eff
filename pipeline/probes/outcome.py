"""What every probe is given and what it gives: the rows of one layer, and metrics with what they cost."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipeline.probes.rows import LayerRows, Rows, Source
from pipeline.probes.settings import Method, ProbeSettings
from pipeline.problem import Problem, problem_in

OF_NUMBERS: tuple[Method, ...] = ("ridge", "knn")
"""Methods that can answer with numbers; the others are for classes."""


@dataclass(frozen=True)
class Splits:
    """The rows of one layer; `readout` rows in turn are an example."""

    train: Source
    validation: Source
    test: Source
    readout: int

    @classmethod
    def of(cls, rows: dict[str, Rows], layer: str | None, features: np.ndarray | None = None) -> Splits:
        """Every split of one layer, or of all layers' features side by side."""
        index = None if layer is None else rows["train"].layers.index(layer)
        parts = (LayerRows(rows[split], index, features) for split in ("train", "validation", "test"))
        return cls(*parts, readout=rows["train"].readout)


@dataclass(frozen=True)
class Spent:
    """Seconds and counted operations, which add up."""

    seconds: float = 0.0
    flops: int = 0

    def __add__(self, other: Spent) -> Spent:
        """Both together."""
        return Spent(self.seconds + other.seconds, self.flops + other.flops)


@dataclass(frozen=True)
class Outcome:
    """What one method gave: metrics without a clock, and what it cost.

    `spent` on fitting, without the reading and the moments of the rows, which all methods share; `epoch_seconds` and
    `epoch_flops` of one pass over train, None where there are no passes.
    """

    metrics: dict[str, Any]
    spent: Spent
    epoch_seconds: float | None = None
    epoch_flops: int | None = None

    @property
    def validation(self) -> tuple[float, float]:
        """What a choice goes by: accuracy on validation, among equals the lower loss; R² where answers are numbers."""
        score = self.metrics.get(problem_in(self.metrics).validation)
        loss = self.metrics.get("validation_loss", self.metrics.get("validation_mse"))
        return (-np.inf if score is None else score), (-np.inf if loss is None else -loss)


def skipped(reason: str, problem: Problem) -> Outcome:
    """A probe that could not be fitted, and why."""
    return Outcome({"status": f"skipped: {reason}", problem.test: None, problem.validation: None}, Spent())


def nothing_chosen(outcome: Outcome) -> Outcome:
    """The outcome with a status that says why its layer and penalty are none that did best on validation."""
    status = f"{outcome.metrics['status']}, nothing chosen: no validation examples"
    return replace(outcome, metrics=outcome.metrics | {"status": status})


def able_first(methods: tuple[Method, ...], classes: int) -> tuple[Method, ...]:
    """The methods, those that can answer such a task before the others: the first one chooses the layer."""
    return tuple(sorted(methods, key=lambda method: not classes and method not in OF_NUMBERS))


def obstacle(source: Source, method: Method, settings: ProbeSettings) -> str | None:
    """Why a method cannot be fitted to these rows; None when it can."""
    if not len(source):
        return "no training rows"
    if all(len(np.unique(column)) < 2 for column in source.labels.T):
        return "single class" if source.classes else "all answers are equal"
    if not source.classes and method not in OF_NUMBERS:
        return "for classes, and the answers are numbers"
    if method == "ridge" and settings.class_weights is not None and source.classes and source.labels.shape[1] > 1:
        return "class weights need one answer a row"
    return None


def scores_of(source: Source) -> int:
    """Numbers that a linear model gives for a row: one a class for each answer, or the answer itself."""
    return source.labels.shape[1] * max(1, source.classes)
