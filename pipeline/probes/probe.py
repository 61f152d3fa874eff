"""Trains probes on a feature store: what a frozen backbone is worth without touching it. Start here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from pipeline.costs.flops import gram_flops
from pipeline.costs.meters import EnergyMeter, measured
from pipeline.costs.record import Clock, CostRecord, MethodCost, peak_memory_bytes
from pipeline.errors import PermafrostError
from pipeline.execution.cluster import Tls, on_this_machine
from pipeline.features import FeatureStore
from pipeline.probes.fitting import fit_head2toe, fit_method
from pipeline.probes.layer_moments import distributed_moments, layer_moments
from pipeline.probes.moments import Moments
from pipeline.probes.outcome import Outcome, Spent, Splits, able_first, scores_of, skipped
from pipeline.probes.rows import MEMORY_BYTES, Rows, Standardisation
from pipeline.probes.settings import ProbeSettings
from pipeline.probes.weights import weights_of
from pipeline.problem import problem_in, problem_of

SPLITS = ("train", "validation", "test")
Sweep = dict[str, dict[str, Outcome]]
"""What each layer gave by method."""


@dataclass(frozen=True)
class Where:
    """What changes only speed and place.

    Rows are kept in memory up to `memory_bytes` of float32 and read again for each pass beyond. Ridge and logistic
    regression run on the torch `device`, in numpy without one. `scheduler` sums up the moments.
    """

    memory_bytes: int = MEMORY_BYTES
    device: str | None = None
    scheduler: str = "inline"
    tls: Tls | None = None


HERE = Where()


def run_probe(
    store: FeatureStore, settings: ProbeSettings, key: str, where: Where = HERE
) -> tuple[dict[str, Any], CostRecord]:
    """Fit every method on every cached layer, choose on validation, score test.

    Where answers are numbers, methods that are for classes say so, and the first of the others counts as the first.

    Args:
        store: the cached features.
        settings: what to fit.
        key: name of the artifact, for the cost.
        where: on one kind of device no number depends on it.

    Returns:
        The metrics, which are reproducible, and the cost, which a clock measured. The metrics are those of the first
        method on the layer that is best on validation, beside `methods`, `layers` and `learning_curve`.

    Raises:
        StaleArtifact: the store is damaged.
        PermafrostError: class weights name a class that there is not, or the scheduler cannot be used.
    """
    settings = replace(settings, methods=able_first(settings.methods, store.attributes["classes"]))
    with threadpool_limits(settings.threads):
        clock, meter = Clock(), EnergyMeter()
        with clock.measuring():
            rows = open_rows(store, settings, where)
            moments = distributed_moments(rows["train"], settings.threads, where.scheduler, where.tls, where.device)
            standardise(rows, moments)
        reading = Spent(clock.seconds, moments_flops(rows["train"]))
        found = _sweep(store.layers, rows, open_raw(store, settings, where), moments, settings)
        chosen = best_layer(found, settings.methods[0], bool(len(rows["validation"])))
        curve, drawing = learning_curve(store, chosen, settings, where)
        if 1.0 in settings.fractions:
            whole = {"fraction": 1.0, "examples": rows["train"].examples}
            curve.append(whole | _summary(found[chosen][settings.methods[0]]))
        of_all_layers = {"head2toe": fit_head2toe(rows, settings)} if "head2toe" in settings.methods else {}
    outcomes = {**found[chosen], **of_all_layers}
    metrics = _metrics(outcomes, settings.methods[0], chosen) | {
        "test_answers": int(rows["test"].labels.size),
        "floors": store.manifest["floors"],
        "layers": {layer: {name: _summary(one) for name, one in sweep.items()} for layer, sweep in found.items()},
        "learning_curve": curve,
    }
    cost = stage_cost(outcomes, found, reading, drawing, key)
    cost = replace(cost, examples=rows["train"].examples, device=where.device or "cpu")
    return metrics, measured(cost, meter, None, on_this_machine(where.scheduler))


def _metrics(outcomes: dict[str, Outcome], first: str, layer: str) -> dict[str, Any]:
    others = {name: one.metrics for name, one in outcomes.items() if name != first}
    return {**outcomes[first].metrics, "method": first, "layer": layer, "methods": others}


def _sweep(
    layers: Sequence[str],
    rows: dict[str, Rows],
    raw: dict[str, Rows] | None,
    moments: dict[str, Moments],
    settings: ProbeSettings,
) -> Sweep:
    """Every method on some layers; what cannot be fitted says why and lets the others go on."""
    found: Sweep = {}
    for layer in layers:
        splits = Splits.of(rows, layer)
        as_cached = None if raw is None else Splits.of(raw, layer)
        found[layer] = {
            method: fit_method(method, splits, as_cached, moments[layer], settings)
            if layer in moments
            else skipped("no training rows", problem_of(splits.train.classes))
            for method in settings.methods
            if method != "head2toe"
        }
    return found


def open_rows(
    store: FeatureStore, settings: ProbeSettings, where: Where, train: np.ndarray | None = None
) -> dict[str, Rows]:
    """The splits of a store, which share the memory by size; `train` picks examples of the training split.

    Raises:
        PermafrostError: class weights name a class that there is not.
    """
    sizes = {split: len(store.labels(split)) for split in SPLITS}
    total = 4 * sum(sizes.values()) * int(np.prod(store.shape[1:]))
    keep = where.memory_bytes if total <= where.memory_bytes else 0
    rows = {split: Rows(store, split, keep, train if split == "train" else None, where.device) for split in SPLITS}
    whole = rows["train"]
    try:
        whole.class_weights = weights_of(settings.class_weights, whole.labels, whole.classes)
    except ValueError as error:
        raise PermafrostError(str(error), mend="edit params.yaml; the store's labels are class numbers") from error
    return rows


def open_raw(
    store: FeatureStore, settings: ProbeSettings, where: Where, train: np.ndarray | None = None
) -> dict[str, Rows] | None:
    """The splits as they were cached, for the paper's probe, which runs in numpy; None when it is not asked for."""
    if "sgd" not in settings.methods:
        return None
    return open_rows(store, settings, replace(where, device=None), train)


def standardise(rows: dict[str, Rows], moments: dict[str, Moments]) -> None:
    """Bring every split to the scale of the training rows."""
    if not moments:
        return
    mean, spread = (np.stack([getattr(one, name) for one in moments.values()]) for name in ("mean", "spread"))
    for split in rows.values():
        split.standardise(Standardisation.of(mean, spread))


def learning_curve(
    store: FeatureStore, layer: str, settings: ProbeSettings, where: Where
) -> tuple[list[dict[str, Any]], Spent]:
    """The first method on nested, seeded shares of the training examples, each chosen on validation.

    The whole of train is left out: the sweep has it. Beside the points comes what they took.
    """
    points, spent, total = [], Spent(), len(store.labels("train"))
    order = np.random.default_rng(settings.seed).permutation(total)
    settings = replace(settings, methods=settings.methods[:1])
    for fraction in sorted(settings.fractions):
        count = max(1, round(fraction * total))
        if fraction == 1.0 or count > total:
            continue
        picked = np.sort(order[:count])
        clock, raw = Clock(), open_raw(store, settings, where, picked)
        with clock.measuring():
            rows = open_rows(store, settings, where, picked)
            moments = layer_moments(rows["train"])
            standardise(rows, moments)
        found = _sweep([layer], rows, raw, moments, settings)[layer][settings.methods[0]]
        points.append({"fraction": fraction, "examples": count, **_summary(found)})
        spent += Spent(clock.seconds, moments_flops(rows["train"])) + found.spent
    return points, spent


def _summary(one: Outcome) -> dict[str, Any]:
    problem = problem_in(one.metrics)
    wanted = ("status", problem.validation, problem.test, "test_interval")
    return {name: one.metrics.get(name) for name in wanted}


def stage_cost(outcomes: dict[str, Outcome], found: Sweep, reading: Spent, drawing: Spent, key: str) -> CostRecord:
    """Of the whole stage: reading once, every fit of every method, drawing the learning curve; the first method leads.

    A method's own cost has its fits on all layers: trying the others is what its choice took.
    """
    fits = {name: [sweep[name] for sweep in found.values() if name in sweep] or [outcomes[name]] for name in outcomes}
    whole = sum((one.spent for tried in fits.values() for one in tried), reading + drawing)
    spent = {name: sum((one.spent for one in tried), reading) for name, tried in fits.items()}
    return CostRecord(
        stage="probe",
        key=key,
        seconds=whole.seconds,
        flops=whole.flops,
        peak_bytes=peak_memory_bytes(),
        device="cpu",
        examples=0,
        seconds_per_epoch=next(iter(outcomes.values())).epoch_seconds,
        methods={
            name: MethodCost(spent[name].seconds, spent[name].flops, one.epoch_seconds, one.epoch_flops)
            for name, one in outcomes.items()
        },
    )


def moments_flops(train: Rows) -> int:
    """Of the moments of every layer of these rows, none where there are no rows."""
    return len(train.layers) * gram_flops(len(train), train.width, scores_of(train.every_layer()))


def best_layer(found: Sweep, first: str, judged: bool) -> str:
    """The layer on which the first method is best on validation; the last one where nothing was judged there."""
    return max(found, key=lambda layer: found[layer][first].validation) if judged else [*found][-1]
