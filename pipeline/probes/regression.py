"""How a ridge probe does where answers are numbers: error and explained variance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64

from pipeline.probes.judge import RESAMPLES, Z_HIGH, Z_LOW
from pipeline.probes.linear import LinearModel
from pipeline.probes.rows import Source

DRAWN = 32
"""Bootstrap resamples drawn at a time."""


@dataclass(frozen=True)
class Fitness:
    """One model on one split; `squares` are each example's squared error, and its answers' distance from their mean."""

    squares: Float64[np.ndarray, "example 2"]
    answers: int

    @property
    def r2(self) -> float | None:
        """The share of the answers' variance on this split that is explained; None where they do not vary."""
        error, spread = self.squares.sum(axis=0)
        return 1 - float(error / spread) if spread > 0 else None

    @property
    def rmse(self) -> float | None:
        """The root of the mean squared error, in the answers' unit; None without answers."""
        return float(np.sqrt(self.squares[:, 0].sum() / self.answers)) if self.answers else None

    def interval(self, seed: int) -> tuple[float, float] | None:
        """The 95 % bootstrap interval of R²; whole examples are drawn."""
        if self.r2 is None:
            return None
        generator, count = np.random.default_rng(seed), len(self.squares)
        drawn = []
        for _ in range(0, RESAMPLES, DRAWN):
            error, spread = self.squares[generator.integers(0, count, (DRAWN, count))].sum(axis=1).T
            drawn.append(1 - error / np.where(spread > 0, spread, np.inf))
        low, high = np.percentile(np.concatenate(drawn), (Z_LOW, Z_HIGH))
        return float(low), float(high)


def fitness(models: Sequence[LinearModel], source: Source, readout: int = 1) -> list[Fitness]:
    """Judge models in one pass over a split; `readout` rows in turn are one example, each answer has its own mean."""
    mean = source.labels.mean(axis=0, dtype=np.float64) if len(source) else 0.0
    errors: list[list[np.ndarray]] = [[] for _ in models]
    for block in source:
        for model, found in zip(models, errors, strict=True):
            found.append(((model.scores(block.x)[:, :, 0] - block.labels) ** 2).sum(axis=1, dtype=np.float64))
    spread = ((source.labels - mean) ** 2).sum(axis=1, dtype=np.float64)
    return [
        Fitness(
            np.stack([np.concatenate([np.zeros(0), *found]), spread], axis=1).reshape(-1, readout, 2).sum(axis=1),
            source.labels.size,
        )
        for found in errors
    ]


def scored(chosen: Fitness, tested: Fitness, seed: int) -> dict[str, Any]:
    """What the metrics say of a model of numbers; there is no accuracy."""
    return {
        "validation_accuracy": None,
        "validation_r2": chosen.r2,
        "test_accuracy": None,
        "test_r2": tested.r2,
        "test_rmse": tested.rmse,
        "test_interval": tested.interval(seed),
    }
