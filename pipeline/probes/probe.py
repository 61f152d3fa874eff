"""Trains a probe on a feature store: what a frozen backbone is worth without touching it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32, Integer
from threadpoolctl import threadpool_limits

from pipeline.costs.flops import logistic_epoch_flops
from pipeline.costs.record import Clock, CostRecord, peak_memory_bytes
from pipeline.features import FeatureStore
from pipeline.probes.logistic import Fit, Standardisation, fit_path
from pipeline.probes.settings import ProbeSettings
from pipeline.tasks.scoring import accuracy


@dataclass(frozen=True)
class Examples:
    """One split: standardised rows, one for each readout position, and each row's answers.

    One linear layer serves all readout positions, as in FPT; so they are rows like any other.
    """

    x: Float32[np.ndarray, "row feature"]
    labels: Integer[np.ndarray, "row answer"]

    @classmethod
    def of(cls, store: FeatureStore, split: str, standardisation: Standardisation) -> Examples:
        """A split of a store; an example's answers are shared out among its readout positions, the first's first."""
        x = standardisation.apply(_rows(store, split))
        return cls(x, store.labels(split).reshape(len(x), -1))

    def accuracy(self, fit: Fit) -> float | None:
        """The share of answers that the fit gets right; None when there are none."""
        return accuracy(fit.model.scores(self.x).argmax(axis=2), self.labels)


def run_probe(store: FeatureStore, settings: ProbeSettings, key: str) -> tuple[dict[str, Any], CostRecord]:
    """Fit a path of penalties on train, choose on validation, score test once.

    Returns:
        The metrics, which are reproducible, and the cost, which a clock measured.

    Raises:
        StaleArtifact: the store is damaged.
    """
    clock, classes = Clock(), store.attributes["classes"]
    with threadpool_limits(settings.threads):
        with clock.measuring():
            standardisation = Standardisation.fit(_rows(store, "train"))
            train = Examples.of(store, "train", standardisation)
            path = fit_path(train.x, train.labels, classes, settings.penalties, settings.iterations)
        validation, test = (Examples.of(store, split, standardisation) for split in ("validation", "test"))
        table = [_validated(fit, validation) for fit in path]
        chosen = max(range(len(path)), key=lambda i: (table[i]["validation_accuracy"], -table[i]["validation_loss"]))
        test_accuracy = test.accuracy(path[chosen])
    epochs = sum(fit.epochs for fit in path)
    metrics = {
        "test_accuracy": test_accuracy,
        "test_answers": test.labels.size,
        "validation_accuracy": table[chosen]["validation_accuracy"],
        "penalty": path[chosen].penalty,
        "converged": path[chosen].converged,
        "trained_parameters": path[chosen].model.weight.size + path[chosen].model.bias.size,
        "epochs": epochs,
        "path": table,
        "floors": store.manifest["floors"],
    }
    cost = CostRecord(
        stage="probe",
        key=key,
        seconds=clock.seconds,
        flops=epochs * logistic_epoch_flops(len(train.x), train.x.shape[1], path[chosen].model.bias.size),
        peak_bytes=peak_memory_bytes(),
        device="cpu",
        examples=len(store.labels("train")),
        seconds_per_epoch=clock.seconds / epochs,
    )
    return metrics, cost


def _rows(store: FeatureStore, split: str) -> Float32[np.ndarray, "row feature"]:
    """A row for each readout position, the kept layers side by side."""
    features = store.read(split)
    return features.reshape(features.shape[0] * features.shape[1], -1)


def _validated(fit: Fit, validation: Examples) -> dict[str, Any]:
    return {
        "penalty": fit.penalty,
        "epochs": fit.epochs,
        "converged": fit.converged,
        "validation_accuracy": validation.accuracy(fit),
        "validation_loss": fit.model.loss(validation.x, validation.labels),
    }
