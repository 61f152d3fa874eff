"""Runs a frozen backbone once over a task and keeps its hidden states.

Start here: `extract` computes the shards that are missing, wherever it is told to, checks a sample against float32, and
publishes. The work is cut into shards before it begins (`plan.py`), each is computed whole by one worker (`shard.py`),
so a crash costs the shards that were being computed, and the bytes depend neither on it nor on who computed what.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from pipeline.backbones.settings import with_whole_paths
from pipeline.costs.record import CostRecord, peak_memory_bytes
from pipeline.device import device_kind
from pipeline.errors import PermafrostError
from pipeline.execution.cluster import Tls
from pipeline.execution.run import run
from pipeline.extraction.fidelity import check_fidelity
from pipeline.extraction.forward import layer_names
from pipeline.extraction.readout import kept_together, state_names
from pipeline.extraction.settings import CacheSettings
from pipeline.extraction.shard import LOADED_CODE, Inputs, ShardJob, compute_shard, find_inputs
from pipeline.extraction.sources import AnyBackbone, made_with, pass_flops
from pipeline.features.layout import Layout, plan_layout
from pipeline.features.store import SCHEMA
from pipeline.features.workspace import Workspace, shard_key
from pipeline.features.write import create_store
from pipeline.identity import file_digests, write_manifest
from pipeline.looped.backbone import LoopedBackbone
from pipeline.progress import progress
from pipeline.tasks.tokens import Tokens


@dataclass(frozen=True)
class Extraction:
    """One task under one backbone, planned. `identity` decides the stored bytes on one kind of device."""

    tokens: Tokens
    backbone: AnyBackbone
    settings: CacheSettings
    inputs: Inputs
    layout: Layout
    identity: dict[str, Any]


@dataclass(frozen=True)
class Where:
    """What changes speed and place but no byte: device, work folder, who computes, whether to take over old work."""

    device: torch.device
    work: Path
    scheduler: str = "inline"
    tls: Tls | None = None
    fresh: bool = False


def plan_extraction(
    tokens: Tokens, backbone: AnyBackbone, settings: CacheSettings, names: dict[str, Any]
) -> Extraction:
    """Decide everything before anything runs.

    `names` is the part of the identity that params.yaml gives: `task`, `backbone` and their entries.

    Raises:
        PermafrostError: an input is longer than the backbone's positions, a layer does not exist, the task changes its
            images while training, its inputs are not the looped transformer's states, or several readouts keep
            different numbers of vectors.
    """
    if tokens.augment is not None:
        raise PermafrostError(
            f"{tokens.task} is augmented ({tokens.augment}): no image is seen twice, so nothing can be cached",
            mend=f"set tasks.{tokens.task}.augment: none, or use the fine-tune alone",
        )
    if isinstance(backbone, LoopedBackbone):
        backbone.require_states(tokens.task, tokens.kind, tokens.splits["train"].inputs.shape[1:])
    if tokens.length > backbone.spec.positions:
        raise PermafrostError(
            f"{tokens.task} has {tokens.length} tokens, the backbone has {backbone.spec.positions} positions",
            mend="make the task's inputs shorter or choose another backbone",
        )
    layers = layer_names(settings.layers, backbone.spec.layers)
    inputs = find_inputs(tokens.path.resolve(), tokens.digest)
    kept = kept_together(settings.readout, tokens.readout, tokens.length)
    sizes = (settings.storage_dtype, settings.shard_bytes, settings.chunk_bytes)
    states = state_names(layers, settings.readout)
    layout = plan_layout(len(inputs.first), kept, states, backbone.spec.width, *sizes)
    identity = {**names, "schema": SCHEMA, "tokens": tokens.digest, "weights": backbone.weights}
    return Extraction(tokens, backbone, settings, inputs, layout, identity)


def extract(plan: Extraction, destination: Path, where: Where) -> CostRecord:
    """Compute what is missing of a plan and publish it at `destination`.

    Shards that an interrupted run finished, with the same identity, code, library versions and kind of device, are
    taken over unless `where.fresh`.

    Raises:
        PermafrostError: another process writes the same features, there is no room for them, a value does not fit the
            storage dtype, or a sample differs from float32 by more than the tolerance.
        OSError: the disk is full; finished shards are kept.
    """
    torch.set_num_threads(plan.settings.threads)  # the check against float32 runs here, whoever computed the shards
    made, reason = made_with(plan.backbone, plan.settings, where.device)
    print(f"cache {destination.name}: {reason}", flush=True)
    key = shard_key(plan.identity, made)
    with Workspace(where.work / "cache" / destination.name, key) as workspace:
        if where.fresh:
            workspace.discard()
        if not workspace.store.exists():
            _create(plan, workspace.store, destination.parent)
        job = shard_job(plan, workspace.store, where, made, key)
        seconds = _compute_missing(job, workspace, where, destination.name)
        fidelity = check_fidelity(job, plan.inputs, workspace.store)
        workspace.sweep()
        _write_manifest(plan, workspace, fidelity=fidelity, **made)
        workspace.publish(destination)
        workspace.prune()
    return _cost(plan, destination.name, seconds, where.device)


def _create(plan: Extraction, path: Path, published: Path) -> None:
    partial_path = path.with_name("store.partial")
    for folder in (partial_path.parent, published):
        folder.mkdir(parents=True, exist_ok=True)
    _require_room(plan.layout.bytes, partial_path.parent)
    if published.stat().st_dev != partial_path.parent.stat().st_dev:  # shards are copied there and not linked
        _require_room(plan.layout.bytes, published)
    labels = {name: split.read_labels() for name, split in plan.tokens.splits.items()}
    splits = {name: {"row": rows, "labels": labels[name]} for name, rows in plan.inputs.rows.items()}
    attributes = {"classes": plan.tokens.classes, "dtype": plan.layout.dtype, "layers": list(plan.layout.layers)}
    create_store(partial_path, plan.layout, attributes, splits)
    partial_path.rename(path)


def _require_room(needed: int, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise PermafrostError(
            f"the features take {needed / 1e9:.1f} GB, {folder} has {free / 1e9:.1f} GB free",
            mend="free some space, set PERMAFROST_WORK to another disk, or keep fewer layers or positions",
        )


def shard_job(plan: Extraction, store: Path, where: Where, made: dict[str, Any], key: str) -> ShardJob:
    """What each shard of a plan is computed from; `store` is where it is written, `made` and `key` as in `extract`."""
    tokens, device = plan.tokens.path.resolve(), str(where.device)
    alike = {**made, "tokens": plan.tokens.digest, "weights": plan.backbone.weights, "code": LOADED_CODE}
    source = with_whole_paths(plan.backbone.settings)
    return ShardJob(tokens, source, plan.settings, store.resolve(), plan.layout, device, key, alike)


def _compute_missing(job: ShardJob, workspace: Workspace, where: Where, name: str) -> float:
    """Compute the shards that are not done; the seconds by the clock, with those of an interrupted run.

    A shard is noted with what passed since the one before it, so that workers side by side are not counted twice.
    """
    layout = job.layout
    found = {shard: workspace.done(shard, layout.file_of(shard)) for shard in range(layout.shards)}
    seconds = sum(marker["seconds"] for marker in found.values() if marker)
    with progress(f"cache {name}", layout.rows, "rows") as report:
        for shard, marker in found.items():
            if marker:
                report(len(layout.rows_of(shard)), f"shard {shard + 1}/{layout.shards} was done")
        missing = [shard for shard, marker in found.items() if not marker]
        last = time.perf_counter()
        for shard, written in run(partial(compute_shard, job), missing, where.scheduler, where.tls):
            if not (job.store / layout.file_of(shard)).is_file():
                raise PermafrostError(
                    f"a worker wrote shard {shard + 1}, but {job.store} does not hold it here",
                    mend="set PERMAFROST_WORK to a folder that all machines share",
                )
            took, last = time.perf_counter() - last, time.perf_counter()
            workspace.mark_done(shard, written.sha256, took, written.float32_rows)
            report(len(layout.rows_of(shard)), f"shard {shard + 1}/{layout.shards}")
            seconds += took
    return seconds


def _write_manifest(plan: Extraction, workspace: Workspace, **made: Any) -> None:
    markers = workspace.markers(range(plan.layout.shards))
    again = {str(shard): marker["float32_rows"] for shard, marker in markers.items() if marker["float32_rows"]}
    if again:
        print(f"cache: {sum(again.values())} rows were not finite and were computed again in float32", flush=True)
    counts = {
        "examples": {name: len(split) for name, split in plan.tokens.splits.items()},
        "unique": plan.layout.rows,
        "float32_rows": again,
    }
    extra = {
        "counts": counts,
        "layout": asdict(plan.layout) | {"shards": plan.layout.shards},
        "floors": plan.tokens.floors,
        **made,
    }
    digests = {plan.layout.file_of(shard): marker["sha256"] for shard, marker in markers.items()}
    write_manifest(workspace.store, plan.identity, file_digests(workspace.store, digests), **extra)


def _cost(plan: Extraction, key: str, seconds: float, device: torch.device) -> CostRecord:
    return CostRecord(
        stage="cache",
        key=key,
        seconds=seconds,
        flops=pass_flops(plan.backbone, plan.tokens, plan.settings, plan.inputs.lengths),
        peak_bytes=peak_memory_bytes(),
        device=device_kind(device),
        examples=sum(len(split) for split in plan.tokens.splits.values()),
    )
