"""What trivial predictors score on test: a result means nothing without them beside it."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.tasks.linear import linear_model
from pipeline.tasks.scoring import SquaredErrors
from pipeline.tasks.task import BLOCK_ROWS, Block, Predictor, Split, TaskData


def floors(task: TaskData) -> dict[str, float]:
    """Score on test by name: the majority class, the task's own rules, and a linear model on raw inputs.

    The score is accuracy; of a regression R², and the train mean stands in the place of the majority. Empty where
    there is nothing to learn from or nothing to judge, and for a regression where the targets of test do not vary.
    """
    return floors_with_notes(task)[0]


def floors_with_notes(task: TaskData) -> tuple[dict[str, float], dict[str, Any]]:
    """The floors, and notes for the manifest.

    `linear_floor` is how the linear model was fitted (its cost is bounded, see `pipeline/tasks/linear.py`);
    `floors_mse`, of a regression, each floor's mean squared error in the targets' unit squared.
    """
    train, test = task.splits["train"], task.splits["test"]
    if not len(train) or not len(test):
        return {}, {}
    linear, notes = linear_model(task)
    constant = {"majority class": majority(train, task.classes)} if task.classes else {"train mean": mean(train)}
    predictors = {
        **constant,
        **{name: rule(train) for name, rule in task.rules.items()},
        "linear model on raw inputs": linear,
    }
    if task.classes:
        return scores(predictors, test), {"linear_floor": notes}
    errors = squared_errors(predictors, test)
    explained = {name: one.r2 for name, one in errors.items() if one.r2 is not None}
    return explained, {"linear_floor": notes, "floors_mse": {name: one.mse for name, one in errors.items()}}


def majority(train: Split, classes: int) -> Predictor:
    """For each answer the class that train has most often."""
    answers = train.read(0, 0).labels.shape[1]
    counts = np.zeros((answers, classes), np.int64)
    for block in train.blocks(BLOCK_ROWS):
        keys = block.labels.astype(np.int64) + classes * np.arange(answers)
        counts += np.bincount(keys.ravel(), minlength=answers * classes).reshape(answers, classes)
    best = counts.argmax(axis=1)

    def predict(block: Block) -> np.ndarray:
        return np.broadcast_to(best, block.labels.shape)

    return predict


def mean(train: Split) -> Predictor:
    """For each answer the mean over train."""
    total = np.zeros(train.read(0, 0).labels.shape[1])
    for block in train.blocks(BLOCK_ROWS):
        total += block.labels.sum(axis=0, dtype=np.float64)

    def predict(block: Block) -> np.ndarray:
        return np.broadcast_to(total / len(train), block.labels.shape)

    return predict


def scores(predictors: dict[str, Predictor], test: Split) -> dict[str, float]:
    """The share of all answers of `test` that each predictor gets right, read block by block."""
    right = dict.fromkeys(predictors, 0)
    answers = 0
    for block in test.blocks(BLOCK_ROWS):
        answers += block.labels.size
        for name, predict in predictors.items():
            right[name] += int(np.sum(predict(block) == block.labels))
    return {name: count / answers for name, count in right.items()}


def squared_errors(predictors: dict[str, Predictor], test: Split) -> dict[str, SquaredErrors]:
    """How far from the numbers of `test` each predictor is, read block by block."""
    errors = {name: SquaredErrors() for name in predictors}
    for block in test.blocks(BLOCK_ROWS):
        for name, predict in predictors.items():
            errors[name].update(predict(block), block.labels)
    return errors
