"""What kind of answer a task asks for, and by which score it is judged: one notion from the tokens to the report.

A task has `classes`, or 0 of them where its answers are numbers. What a result holds says by its names which of the two
it is: `test_accuracy`, or `test_r2` in its place.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Problem:
    """Classification or regression: the score's `metric`, its name in metrics, and its `label` for people."""

    name: Literal["classification", "regression"]
    metric: Literal["accuracy", "r2"]
    label: str

    @property
    def test(self) -> str:
        """The name of the score on test in metrics."""
        return f"test_{self.metric}"

    @property
    def validation(self) -> str:
        """The name of the score on validation in metrics and in learning curves."""
        return f"validation_{self.metric}"

    def said(self, score: float | None, form: str = ".3f") -> str:
        """A score with its name, in a sentence."""
        return f"{self.label} {'–' if score is None else format(score, form)}"

    def cell(self, score: float, form: str = ".3f") -> str:
        """A score in a table, where accuracies are plain numbers and any other score says what it is."""
        return format(score, form) if self == CLASSIFICATION else self.said(score, form)


CLASSIFICATION = Problem("classification", "accuracy", "accuracy")
REGRESSION = Problem("regression", "r2", "R²")


def problem_of(classes: int) -> Problem:
    """The problem of a task with so many classes; 0 where its answers are numbers."""
    return CLASSIFICATION if classes else REGRESSION


def problem_named(name: str) -> Problem:
    """The problem that a manifest names."""
    return {problem.name: problem for problem in (CLASSIFICATION, REGRESSION)}[name]


def problem_in(result: Container[str]) -> Problem:
    """The problem that the names of a result's scores speak of: those of metrics, or of a learning curve's columns."""
    found = REGRESSION.test in result or REGRESSION.validation in result
    return REGRESSION if found else CLASSIFICATION
