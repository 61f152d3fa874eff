"""The linear model on raw inputs: the floor that says how much of a task needs no backbone at all.

Its cost is bounded whatever the task's size: it is fitted on at most 10 000 examples of train and at most 10 million
numbers (40 MB), its penalty is chosen on as many of validation, and test is scored whole, block by block.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32, Integer

from pipeline.tasks.scoring import SquaredErrors
from pipeline.tasks.task import Block, Predictor, TaskData

MOST_ROWS = 10_000
MOST_NUMBERS = 10_000_000
MOST_LOGISTIC = 64
INVERSE_PENALTIES = (1e-3, 1e-2, 1e-1, 1.0)
RIDGE_PENALTIES = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
IDS_COUNTED = 500


@dataclass(frozen=True)
class RawInputs:
    """A block as numbers: patches flattened over tokens, or how often each of the `ids` occurs and which is first.

    Only the 500 ids that are the most frequent in the fitted rows are counted. All numbers are standardised with the
    fitted rows' mean and standard deviation.
    """

    ids: Integer[np.ndarray, " id"] | None
    center: Float32[np.ndarray, " value"]
    spread: Float32[np.ndarray, " value"]

    @classmethod
    def fit(cls, block: Block, vocabulary: int | None) -> RawInputs:
        """The numbers of a task whose train rows look like `block`; `vocabulary` is None for patches."""
        ids = None if vocabulary is None else _frequent(block, vocabulary)
        values = _values(block, ids)
        spread = values.std(axis=0)
        return cls(ids, values.mean(axis=0), np.where(spread > 0, spread, np.float32(1)))

    def __call__(self, block: Block) -> Float32[np.ndarray, "example value"]:
        """The standardised numbers of each example."""
        return (_values(block, self.ids) - self.center) / self.spread


def _frequent(block: Block, vocabulary: int) -> np.ndarray:
    counts = np.bincount(block.inputs[_real(block)].astype(np.int64), minlength=vocabulary)
    return np.sort(np.argsort(-counts, kind="stable")[:IDS_COUNTED])


def _real(block: Block) -> np.ndarray:
    """Which tokens are real: bool `(example, token)`."""
    width = block.inputs.shape[1]
    lengths = np.full(len(block), width) if block.lengths is None else block.lengths
    return np.arange(width) < lengths[:, None]


def _values(block: Block, ids: np.ndarray | None) -> np.ndarray:
    if ids is None:
        return block.inputs.reshape(len(block), int(np.prod(block.inputs.shape[1:]))).astype(np.float32)
    place = np.searchsorted(ids, block.inputs).clip(max=len(ids) - 1)
    known = (ids[place] == block.inputs) & _real(block)
    row = np.broadcast_to(np.arange(len(block))[:, None], place.shape)
    counts = np.bincount((row * len(ids) + place)[known], minlength=len(block) * len(ids)).reshape(-1, len(ids))
    first = (ids == block.inputs[:, :1]) & _real(block)[:, :1]
    return np.concatenate([counts, first], axis=1).astype(np.float32)


def linear_model(task: TaskData) -> tuple[Predictor, dict[str, Any]]:
    """A linear model of the task, and how it was fitted.

    Logistic regression where answers × classes are at most 64, one model for each answer; beyond that least squares
    on one column a class, one decomposition for all answers and all penalties. Least squares too where answers are
    numbers. One thread does it: beside other work
    the solvers' threads wait for each other ten times longer than they compute.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        return _fitted(task)


def _fitted(task: TaskData) -> tuple[Predictor, dict[str, Any]]:
    rows = _rows(task)
    train, validation = task.splits["train"].sample(rows), task.splits["validation"].sample(rows)
    inputs = RawInputs.fit(train, _counted(task))
    x, x_validation = inputs(train), inputs(validation)
    if 0 < train.labels.shape[1] * task.classes <= MOST_LOGISTIC:
        name = "logistic regression"
        columns = [
            _logistic(x, train.labels[:, answer], x_validation, validation.labels[:, answer])
            for answer in range(train.labels.shape[1])
        ]

        def predict(block: Block) -> np.ndarray:
            values = inputs(block)
            return np.stack([np.asarray(column.predict(values)) for column in columns], axis=1)
    else:
        name = "least squares"
        ridge = Ridge.fit(x, train.labels, task.classes, x_validation, validation.labels)

        def predict(block: Block) -> np.ndarray:
            return ridge.predict(inputs(block))

    return predict, {"model": name, "train_rows": len(train), "validation_rows": len(validation)}


def _counted(task: TaskData) -> int | None:
    """How many ids there are to count; None for patches, and for an image's ids, which are brightness: numbers."""
    return None if task.image is not None else task.vocabulary


def _rows(task: TaskData) -> int:
    inputs, vocabulary = task.splits["train"].read(0, 0).inputs, _counted(task)
    values = int(np.prod(inputs.shape[1:])) if vocabulary is None else 2 * min(IDS_COUNTED, vocabulary)
    return min(MOST_ROWS, max(1, MOST_NUMBERS // values))


def _logistic(x: np.ndarray, labels: np.ndarray, x_validation: np.ndarray, validation: np.ndarray) -> Any:
    from sklearn.dummy import DummyClassifier
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    if len(np.unique(labels)) == 1:
        return DummyClassifier(strategy="most_frequent").fit(x, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a floor may stop early: it can only be higher
        models = [LogisticRegression(C=c, max_iter=100).fit(x, labels) for c in INVERSE_PENALTIES]
    return max(models, key=lambda model: model.score(x_validation, validation)) if len(validation) else models[0]


@dataclass(frozen=True)
class Ridge:
    """Least squares with a penalty on targets of one column a class (±1 in a single column for two classes).

    Numbers, which have 0 classes, are the targets themselves.
    """

    weights: Float32[np.ndarray, "value column"]
    bias: Float32[np.ndarray, " column"]
    classes: int
    answers: int

    @classmethod
    def fit(
        cls, x: np.ndarray, labels: np.ndarray, classes: int, x_validation: np.ndarray, validation: np.ndarray
    ) -> Ridge:
        """The model of the penalty that is best on validation, by accuracy; of numbers by squared error.

        With the smaller Gram matrix G = Q S Qᵀ every penalty p is a rescale by 1 / (S + p · rows).
        """
        targets = _targets(labels, classes)
        bias = targets.mean(axis=0)
        wide = x.shape[1] > x.shape[0]
        values, vectors = np.linalg.eigh(x @ x.T if wide else x.T @ x)
        projected = vectors.T @ (targets - bias if wide else x.T @ (targets - bias))

        def model(penalty: float) -> Ridge:
            scaled = vectors @ (projected / (values.clip(min=0) + penalty * len(x))[:, None])
            weights = x.T @ scaled if wide else scaled
            return cls(weights.astype(np.float32), bias, classes, labels.shape[1])

        def score(candidate: Ridge) -> float:
            if not len(validation):
                return 0.0
            predicted = candidate.predict(x_validation)
            if not classes:
                return -SquaredErrors().update(predicted, validation).errors
            return float(np.mean(predicted == validation))

        return max((model(penalty) for penalty in RIDGE_PENALTIES), key=score)

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Class numbers, or numbers, `(example, answer)`."""
        scores = x @ self.weights + self.bias
        if not self.classes:
            return scores
        if self.classes == 2:
            return (scores > 0).astype(np.int64)
        return scores.reshape(len(x), self.answers, self.classes).argmax(axis=2)


def _targets(labels: np.ndarray, classes: int) -> np.ndarray:
    if not classes:
        return labels.astype(np.float32)
    if classes == 2:
        return labels.astype(np.float32) * 2 - 1
    one_hot = labels[:, :, None] == np.arange(classes)
    return one_hot.reshape(len(labels), labels.shape[1] * classes).astype(np.float32)
