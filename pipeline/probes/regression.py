"""Probes whose answers are numbers: chosen by squared error on validation, judged by R² on test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float32, Num

from pipeline.costs.flops import ridge_path_flops
from pipeline.costs.record import Clock
from pipeline.probes.arrays import Array, to_numpy
from pipeline.probes.judge import Scorer
from pipeline.probes.moments import Moments
from pipeline.probes.neighbours import nearest_scores
from pipeline.probes.outcome import Outcome, Spent, Splits, scores_of
from pipeline.probes.ridge import Spectrum, ridge_path
from pipeline.probes.rows import Source
from pipeline.probes.settings import ProbeSettings
from pipeline.tasks.scoring import SquaredErrors, number_scores


def ridge_numbers(splits: Splits, moments: Moments, settings: ProbeSettings) -> Outcome:
    """Ridge regression; its penalty is the one with the least squared error on validation, then the strongest."""
    clock, train = Clock(), splits.train
    with clock.measuring():
        path = ridge_path(moments, Spectrum.of(moments), settings.penalties, 0)
    judged = squared_errors([model.scores for _, model in path], splits.validation, splits.readout)
    best, (penalty, model) = min(zip(judged, path, strict=True), key=lambda one: one[0].errors)
    metrics = {
        "status": "fitted",
        "penalty": penalty,
        "epochs": 1,
        "trained_parameters": model.parameters,
        **_scored(best, predictions(model.scores, splits.test, splits.readout), splits, settings.seed),
        "path": [
            {"penalty": penalty, "validation_r2": one.r2, "validation_mse": one.mse}
            for (penalty, _), one in zip(path, judged, strict=True)
        ],
    }
    flops = ridge_path_flops(train.width, scores_of(train), len(path))
    return Outcome(metrics, Spent(clock.seconds, flops))


def nearest_numbers(splits: Splits, settings: ProbeSettings) -> Outcome:
    """The mean of the nearest training rows' answers, each weighing as much as its vote for a class would."""
    clock = Clock()

    def scores(x: Array) -> np.ndarray:
        return nearest_scores(splits.train, to_numpy(x), settings.neighbours)

    with clock.measuring():
        (chosen,) = squared_errors([scores], splits.validation, splits.readout)
        tested = predictions(scores, splits.test, splits.readout)
    metrics = {
        "status": "fitted",
        "epochs": 0,
        "neighbours": settings.neighbours,
        "trained_parameters": 0,
        **_scored(chosen, tested, splits, settings.seed),
    }
    queries = len(splits.validation) + len(splits.test)
    return Outcome(metrics, Spent(clock.seconds, 2 * queries * len(splits.train) * splits.train.width))


def squared_errors(scorers: Sequence[Scorer], source: Source, readout: int) -> list[SquaredErrors]:
    """Judge models in one pass over a split; `readout` rows in turn are one example."""
    found = [SquaredErrors() for _ in scorers]
    for block in source:
        targets = _by_example(block.labels, readout)
        for scorer, one in zip(scorers, found, strict=True):
            one.update(_by_example(scorer(block.x)[:, :, 0], readout), targets)
    return found


def predictions(scorer: Scorer, source: Source, readout: int) -> Float32[np.ndarray, "example answer"]:
    """What a model answers on a split, an example's answers side by side."""
    parts = [np.zeros((0, source.labels.shape[1]), np.float32), *(scorer(block.x)[:, :, 0] for block in source)]
    return _by_example(np.concatenate(parts), readout)


def _by_example(answers: Num[np.ndarray, "row answer"], readout: int) -> Num[np.ndarray, "example all_answers"]:
    return answers.reshape(-1, readout * answers.shape[1])


def _scored(chosen: SquaredErrors, tested: np.ndarray, splits: Splits, seed: int) -> dict[str, Any]:
    return {
        "validation_r2": chosen.r2,
        "validation_mse": chosen.mse,
        **number_scores(tested, _by_example(splits.test.labels, splits.readout), seed),
    }
