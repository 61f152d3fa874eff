"""One method on one layer: fit on train, choose on validation, score test once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pipeline.costs.flops import (
    gram_flops,
    logistic_epoch_flops,
    logistic_pass_flops,
    logistic_path_flops,
    ridge_path_flops,
)
from pipeline.costs.record import Clock
from pipeline.probes.arrays import Array, to_numpy
from pipeline.probes.head2toe import POWER_PASSES, group_lasso, most_relevant, relevance
from pipeline.probes.judge import Score, details, judge, score_path
from pipeline.probes.linear import LinearModel
from pipeline.probes.logistic import Fit, fit_path
from pipeline.probes.moments import Moments, source_moments
from pipeline.probes.neighbours import nearest_scores
from pipeline.probes.outcome import Outcome, Spent, Splits, nothing_chosen, obstacle, scores_of, skipped
from pipeline.probes.regression import nearest_numbers, ridge_numbers
from pipeline.probes.ridge import Spectrum, ridge_path
from pipeline.probes.rows import Rows
from pipeline.probes.settings import Method, ProbeSettings
from pipeline.probes.sgd import fit_sgd
from pipeline.problem import problem_of


def fit_method(
    method: Method, splits: Splits, raw: Splits | None, moments: Moments, settings: ProbeSettings
) -> Outcome:
    """Fit one method to standardised rows; the paper's probe takes them as they were cached (`raw`).

    Returns:
        Metrics with a `status`: `fitted`, `not converged`, or `skipped: ` and why; it also says where there was nothing
        to choose on.
    """
    reason, train = obstacle(splits.train, method, settings), splits.train
    if reason is not None:
        return skipped(reason, problem_of(train.classes))
    found = _fitted(method, splits, raw, moments, settings)
    return found if len(splits.validation) else nothing_chosen(found)


def _fitted(method: Method, splits: Splits, raw: Splits | None, moments: Moments, settings: ProbeSettings) -> Outcome:
    if not splits.train.classes:
        return nearest_numbers(splits, settings) if method == "knn" else ridge_numbers(splits, moments, settings)
    if method == "sgd":
        assert raw is not None, "the paper's probe needs rows as they were cached"
        return _sgd(raw, settings)
    if method == "knn":
        return _neighbours(splits, settings)
    return _path(method, splits, moments, settings)


def fit_head2toe(rows: dict[str, Rows], settings: ProbeSettings) -> Outcome:
    """Features chosen from all layers by a group lasso, and logistic regression on them.

    Each of `lasso_shares` is tried and chosen on validation.
    """
    reason = obstacle(rows["train"].every_layer(), "head2toe", settings)
    if reason is not None:
        return skipped(reason, problem_of(rows["train"].classes))
    clock, train, layers = Clock(), rows["train"].every_layer(), rows["train"].layers
    with clock.measuring():
        found = relevance(group_lasso(train, settings.lasso_penalty, settings.lasso_iterations).weight)
    tried = []
    for share in settings.lasso_shares:
        features = most_relevant(found, share)
        splits, gathering = Splits.of(rows, None, features), Clock()
        with gathering.measuring():
            moments = source_moments(splits.train)
        gathered = Spent(gathering.seconds, gram_flops(len(train), len(features), scores_of(train)))
        outcome = _path("logistic", splits, moments, settings)
        per_layer = np.bincount(features // rows["train"].width, minlength=len(layers))
        chosen = {"features": len(features), "features_of_layers": dict(zip(layers, per_layer.tolist(), strict=True))}
        tried.append(replace(outcome, metrics=outcome.metrics | chosen, spent=outcome.spent + gathered))
    best_one = max(tried, key=lambda one: one.validation)
    passes = settings.lasso_iterations * logistic_epoch_flops(len(train), train.width, scores_of(train))
    passes += POWER_PASSES * logistic_epoch_flops(len(train), train.width, 1)
    spent = sum((one.spent for one in tried), Spent(clock.seconds, passes))
    found = replace(best_one, spent=spent, epoch_seconds=None, epoch_flops=None)
    return found if len(rows["validation"]) else nothing_chosen(found)


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
    judged = score_path([fit.model for fit in path], splits.validation)
    chosen = best(judged)
    fit, model = path[chosen], path[chosen].model
    epochs = 1 if method == "ridge" else sum(fit.epochs for fit in path)
    width, scores = model.weight.shape
    if method == "ridge":
        flops = ridge_path_flops(width, scores, len(path))
    else:
        flops = logistic_path_flops(len(train), width, scores, len(path), epochs)
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
    spent = Spent(setting_up.seconds + clock.seconds, flops)
    if method == "ridge":
        return Outcome(metrics, spent)
    return Outcome(metrics, spent, clock.seconds / epochs, logistic_pass_flops(len(train), width, scores))


def best(judged: Sequence[Score]) -> int:
    """The highest accuracy on validation, among equals the lowest loss; without validation the strongest penalty."""
    return max(range(len(judged)), key=lambda i: (judged[i].accuracy or 0.0, -judged[i].loss))


def _scored(model: LinearModel, chosen: Score, splits: Splits, seed: int, probabilities: bool) -> dict[str, Any]:
    (tested,) = judge([model.scores], splits.test, splits.readout)
    return {
        "validation_accuracy": chosen.accuracy,
        "validation_loss": chosen.loss if chosen.answers else None,
        "trained_parameters": model.parameters,
        **details(tested, seed, probabilities),
    }


def _sgd(splits: Splits, settings: ProbeSettings) -> Outcome:
    clock, train, width = Clock(), splits.train, splits.train.width
    with clock.measuring():
        model = fit_sgd(train, width, settings.sgd_epochs, settings.sgd_batch, settings.seed)
    (chosen,) = score_path([model], splits.validation)
    metrics = {
        "status": "fitted",
        "epochs": settings.sgd_epochs,
        **_scored(model, chosen, splits, settings.seed, True),
    }
    epoch, epochs = logistic_epoch_flops(len(train), width, model.bias.size), settings.sgd_epochs
    return Outcome(metrics, Spent(clock.seconds, epochs * epoch), clock.seconds / epochs, epoch)


def _neighbours(splits: Splits, settings: ProbeSettings) -> Outcome:
    clock = Clock()

    def scores(x: Array) -> np.ndarray:
        return nearest_scores(splits.train, to_numpy(x), settings.neighbours)

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
    return Outcome(metrics, Spent(clock.seconds, 2 * queries * len(splits.train) * splits.train.width))
