"""What trivial predictors score on test: a result means nothing without them beside it."""

from __future__ import annotations

import warnings

import numpy as np
from jaxtyping import Float

from pipeline.tasks.scoring import accuracy
from pipeline.tasks.task import Split, TaskData

INVERSE_PENALTIES = (1e-3, 1e-2, 1e-1, 1.0)


def floors(task: TaskData) -> dict[str, float]:
    """Accuracy on test, by name, of the majority class, of the task's own rules, and of a linear model on raw inputs.

    The linear model is logistic regression on the standardised inputs, flattened over tokens, one for each answer;
    its penalty is chosen on validation.
    """
    train, test = task.splits["train"], task.splits["test"]
    majority = np.stack([np.bincount(column).argmax() for column in train.labels.T])
    found = {"majority class": _score(np.broadcast_to(majority, test.labels.shape), test), **task.rules}
    if task.kind == "patches":
        found["linear model on raw inputs"] = _score(linear_predictions(task), test)
    return found


def linear_predictions(task: TaskData) -> np.ndarray:
    """The classes `(example, answer)` that a linear model on raw inputs gives for the test split."""
    train, validation, test = (task.splits[name] for name in ("train", "validation", "test"))
    center, spread = _standardisation(_flat(train))
    x, x_validation, x_test = ((_flat(split) - center) / spread for split in (train, validation, test))
    columns = []
    for answer in range(train.labels.shape[1]):
        models = [_fit(x, train.labels[:, answer], inverse_penalty) for inverse_penalty in INVERSE_PENALTIES]
        best = max(models, key=lambda model: model.score(x_validation, validation.labels[:, answer]))
        columns.append(best.predict(x_test))
    return np.stack(columns, axis=1)


def _fit(x: np.ndarray, labels: np.ndarray, inverse_penalty: float):
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a floor may stop early: it can only be higher
        return LogisticRegression(C=inverse_penalty, max_iter=300).fit(x, labels)


def _flat(split: Split) -> Float[np.ndarray, "example value"]:
    return split.inputs.reshape(len(split.inputs), -1).astype(np.float64)


def _standardisation(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    spread = x.std(axis=0)
    return x.mean(axis=0), np.where(spread > 0, spread, 1.0)


def _score(predicted: np.ndarray, split: Split) -> float:
    score = accuracy(predicted.astype(np.int64), split.labels)
    if score is None:
        raise ValueError("the test split is empty")
    return score
