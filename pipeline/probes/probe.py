"""Trains probes on a feature store: what a frozen backbone is worth without touching it. Start here."""

from __future__ import annotations

from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from pipeline.costs.flops import gram_flops
from pipeline.costs.record import Clock, CostRecord, MethodCost, peak_memory_bytes
from pipeline.features import FeatureStore
from pipeline.probes.fitting import Outcome, Splits, fit_method, obstacle, skipped
from pipeline.probes.moments import Moments, MomentsFitter, targets
from pipeline.probes.rows import MEMORY_BYTES, Rows, Standardisation
from pipeline.probes.settings import ProbeSettings

SPLITS = ("train", "validation", "test")


def run_probe(
    store: FeatureStore, settings: ProbeSettings, key: str, memory_bytes: int = MEMORY_BYTES
) -> tuple[dict[str, Any], CostRecord]:
    """Fit every method on every cached layer, choose on validation, score test.

    Args:
        store: the cached features.
        settings: what to fit.
        key: name of the artifact, for the cost.
        memory_bytes: rows are kept in memory up to this size and read again for each pass beyond; no number changes.

    Returns:
        The metrics, which are reproducible, and the cost, which a clock measured. The metrics are those of the first
        method on the layer that is best on validation, beside `methods`, `layers` and `learning_curve`.

    Raises:
        StaleArtifact: the store is damaged.
    """
    with threadpool_limits(settings.threads):
        clock = Clock()
        with clock.measuring():
            rows = open_rows(store, memory_bytes)
            moments = layer_moments(rows["train"])
            standardise(rows, moments)
        raw = open_rows(store, memory_bytes) if "sgd" in settings.methods else None
        sweep = {
            layer: {
                method: _attempt(method, layer, rows, raw, moments.get(layer), settings) for method in settings.methods
            }
            for layer in store.layers
        }
        first = settings.methods[0]
        chosen = max(store.layers, key=lambda layer: sweep[layer][first].validation)
        curve = learning_curve(store, chosen, settings, memory_bytes)
        if 1.0 in settings.fractions:
            whole = {"fraction": 1.0, "examples": rows["train"].examples, **_summary(sweep[chosen][first])}
            curve.append(whole)
    metrics = {
        **sweep[chosen][first].metrics,
        "method": first,
        "layer": chosen,
        "test_answers": int(rows["test"].labels.size),
        "floors": store.manifest["floors"],
        "layers": {layer: {name: _summary(one) for name, one in found.items()} for layer, found in sweep.items()},
        "methods": {name: one.metrics for name, one in sweep[chosen].items() if name != first},
        "learning_curve": curve,
    }
    return metrics, _cost(sweep[chosen], first, clock.seconds, rows["train"], key)


def open_rows(store: FeatureStore, memory_bytes: int, train: np.ndarray | None = None) -> dict[str, Rows]:
    """The splits of a store, which share the memory by size; `train` picks examples of the training split."""
    sizes = {split: len(store.labels(split)) for split in SPLITS}
    total = 4 * sum(sizes.values()) * int(np.prod(store.shape[1:]))
    keep = memory_bytes if total <= memory_bytes else 0
    return {split: Rows(store, split, keep, train if split == "train" else None) for split in SPLITS}


def layer_moments(rows: Rows) -> dict[str, Moments]:
    """The moments of every layer, in one pass; empty when there are no rows."""
    fitters = [MomentsFitter() for _ in rows.layers]
    for block in rows:
        y = targets(block.labels, rows.classes)
        for index, fitter in enumerate(fitters):
            fitter.update(block.x[:, index], y)
    return {layer: fitter.result for layer, fitter in zip(rows.layers, fitters, strict=True)} if len(rows) else {}


def standardise(rows: dict[str, Rows], moments: dict[str, Moments]) -> None:
    """Bring every split to the scale of the training rows."""
    if not moments:
        return
    mean, spread = (np.stack([getattr(one, name) for one in moments.values()]) for name in ("mean", "spread"))
    for split in rows.values():
        split.standardise(Standardisation.of(mean, spread))


def splits_of(rows: dict[str, Rows], layer: str) -> Splits:
    """One layer's rows of every split."""
    return Splits(*(rows[split].layer(layer) for split in SPLITS), readout=rows["train"].readout)


def _attempt(
    method: Any,
    layer: str,
    rows: dict[str, Rows],
    raw: dict[str, Rows] | None,
    moments: Moments | None,
    settings: ProbeSettings,
) -> Outcome:
    """One method on one layer; what cannot be fitted says why and lets the others go on."""
    splits = splits_of(rows, layer)
    reason = obstacle(splits.train)
    if reason is not None or moments is None:
        return skipped(reason or "no training rows")
    return fit_method(method, splits, None if raw is None else splits_of(raw, layer), moments, settings)


def learning_curve(store: FeatureStore, layer: str, settings: ProbeSettings, memory_bytes: int) -> list[dict[str, Any]]:
    """The first method on nested, seeded shares of the training examples, each chosen on validation.

    The whole of train is left out: the sweep has it.
    """
    points, total = [], len(store.labels("train"))
    order = np.random.default_rng(settings.seed).permutation(total)
    for fraction in sorted(settings.fractions):
        count = max(1, round(fraction * total))
        if fraction == 1.0 or count > total:
            continue
        rows = open_rows(store, memory_bytes, np.sort(order[:count]))
        moments = layer_moments(rows["train"])
        standardise(rows, moments)
        raw = open_rows(store, memory_bytes, np.sort(order[:count])) if settings.methods[0] == "sgd" else None
        found = _attempt(settings.methods[0], layer, rows, raw, moments.get(layer), settings)
        points.append({"fraction": fraction, "examples": count, **_summary(found)})
    return points


def _summary(one: Outcome) -> dict[str, Any]:
    return {name: one.metrics.get(name) for name in ("status", "validation_accuracy", "test_accuracy", "test_interval")}


def _cost(found: dict[str, Outcome], first: str, reading: float, train: Rows, key: str) -> CostRecord:
    """Of the first method, reading and standardising included; the others beside it."""
    gram = gram_flops(len(train), train.width, train.labels.shape[1] * train.classes)
    one = found[first]
    return CostRecord(
        stage="probe",
        key=key,
        seconds=reading + one.seconds,
        flops=one.flops,
        peak_bytes=peak_memory_bytes(),
        device="cpu",
        examples=train.examples,
        seconds_per_epoch=one.epoch_seconds,
        methods={
            name: MethodCost(
                reading + other.seconds,
                max(other.flops, gram),
                other.epoch_seconds,
            )
            for name, other in found.items()
        },
    )
