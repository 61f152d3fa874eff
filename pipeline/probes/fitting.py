"""One method on one layer: fit on train, choose on validation, score test once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.costs.flops import gram_flops, logistic_epoch_flops
from pipeline.costs.record import Clock
from pipeline.probes.judge import Judged, details, judge, stacked
from pipeline.probes.linear import LinearModel
from pipeline.probes.logistic import Fit, fit_path
from pipeline.probes.moments import Moments
from pipeline.probes.neighbours import nearest_scores
from pipeline.probes.ridge import Spectrum, ridge_path
from pipeline.probes.rows import Source
from pipeline.probes.settings import Method, ProbeSettings
from pipeline.probes.sgd import fit_sgd


@dataclass(frozen=True)
class Splits:
    """The rows of one layer; `readout` rows in turn are an example."""

    train: Source
    validation: Source
    test: Source
    readout: int


@dataclass(frozen=True)
class Outcome:
    """What one method gave: metrics without a clock, and what it cost.

    `seconds` of fitting and `flops` in all; `epoch_seconds` of one pass over train, None where there are no passes.
    """

    metrics: dict[str, Any]
    seconds: float
    flops: int
    epoch_seconds: float | None

    @property
    def validation(self) -> tuple[float, float]:
        """What a choice goes by: accuracy on validation, among equals the lower loss."""
        accuracy, loss = self.metrics.get("validation_accuracy"), self.metrics.get("validation_loss")
        return (-1.0 if accuracy is None else accuracy), (-np.inf if loss is None else -loss)


def skipped(reason: str) -> Outcome:
    """A probe that could not be fitted, and why."""
    return Outcome({"status": f"skipped: {reason}", "test_accuracy": None, "validation_accuracy": None}, 0.0, 0, None)


def obstacle(source: Source) -> str | None:
    """Why nothing can be fitted to these rows; None when something can."""
    if not len(source):
        return "no training rows"
    if all(len(np.unique(column)) < 2 for column in source.labels.T):
        return "single class"
    return None


def fit_method(
    method: Method, splits: Splits, raw: Splits | None, moments: Moments, settings: ProbeSettings
) -> Outcome:
    """Fit one method to standardised rows; the paper's probe takes them as they were cached (`raw`).

    Returns:
        Metrics with a `status`: `fitted`, `not converged`, or `skipped: ` and why.
    """
    if method == "sgd":
        assert raw is not None, "the paper's probe needs rows as they were cached"
        return _sgd(raw, settings)
    if method == "knn":
        return _neighbours(splits, settings)
    return _path(method, splits, moments, settings)


def _path(method: Method, splits: Splits, moments: Moments, settings: ProbeSettings) -> Outcome:
    setting_up, clock, train = Clock(), Clock(), splits.train
    with setting_up.measuring():
        spectrum = Spectrum.of(moments)
    with clock.measuring():
        if method == "ridge":
            models = ridge_path(moments, spectrum, settings.penalties, train.classes)
            path = [Fit(penalty, model, 1, True) for penalty, model in models]
        else:
            path = fit_path(train, spectrum, settings.penalties, settings.iterations)
    judged = stacked([fit.model for fit in path], splits.validation)
    chosen = best(judged)
    fit, model = path[chosen], path[chosen].model
    epochs = 1 if method == "ridge" else sum(fit.epochs for fit in path)
    width, scores = model.weight.shape
    flops = gram_flops(len(train), width, scores)
    if method == "logistic":
        flops += epochs * logistic_epoch_flops(len(train), width, scores)
    metrics = {
        "status": "fitted" if fit.converged else "not converged",
        "converged": fit.converged,
        "penalty": fit.penalty,
        "epochs": epochs,
        **_scored(model, judged[chosen], splits, settings.seed, method == "logistic"),
        "path": [
            {
                "penalty": fit.penalty,
                "epochs": fit.epochs,
                "converged": fit.converged,
                "validation_accuracy": one.accuracy,
                "validation_loss": one.loss if one.answers else None,
            }
            for fit, one in zip(path, judged, strict=True)
        ],
    }
    epoch_seconds = clock.seconds / epochs if method == "logistic" else None
    return Outcome(metrics, setting_up.seconds + clock.seconds, flops, epoch_seconds)


def best(judged: Sequence[Judged]) -> int:
    """The highest accuracy on validation, among equals the lowest loss; without validation the strongest penalty."""
    return max(range(len(judged)), key=lambda i: (judged[i].accuracy or 0.0, -judged[i].loss))


def _scored(model: LinearModel, chosen: Judged, splits: Splits, seed: int, probabilities: bool) -> dict[str, Any]:
    (tested,) = judge([model.scores], splits.test, splits.readout)
    return {
        "validation_accuracy": chosen.accuracy,
        "validation_loss": chosen.loss if chosen.answers else None,
        "trained_parameters": model.parameters,
        **details(tested, seed, probabilities),
    }


def _sgd(splits: Splits, settings: ProbeSettings) -> Outcome:
    clock, train = Clock(), splits.train
    width = next(iter(train)).x.shape[1]
    with clock.measuring():
        model = fit_sgd(train, width, settings.sgd_epochs, settings.sgd_batch, settings.seed)
    (chosen,) = judge([model.scores], splits.validation)
    metrics = {
        "status": "fitted",
        "epochs": settings.sgd_epochs,
        **_scored(model, chosen, splits, settings.seed, True),
    }
    flops = settings.sgd_epochs * logistic_epoch_flops(len(train), width, model.bias.size)
    return Outcome(metrics, clock.seconds, flops, clock.seconds / settings.sgd_epochs)


def _neighbours(splits: Splits, settings: ProbeSettings) -> Outcome:
    clock = Clock()

    def scores(x: np.ndarray) -> np.ndarray:
        return nearest_scores(splits.train, x, settings.neighbours)

    with clock.measuring():
        (chosen,) = judge([scores], splits.validation)
        (tested,) = judge([scores], splits.test, splits.readout)
    metrics = {
        "status": "fitted",
        "epochs": 0,
        "neighbours": settings.neighbours,
        "validation_accuracy": chosen.accuracy,
        "validation_loss": chosen.loss if chosen.answers else None,
        "trained_parameters": 0,
        **details(tested, settings.seed),
    }
    queries = len(splits.validation) + len(splits.test)
    width = next(iter(splits.train)).x.shape[1]
    return Outcome(metrics, clock.seconds, 2 * queries * len(splits.train) * width, None)
