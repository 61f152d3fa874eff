"""Runs a frozen backbone once over a task and keeps its hidden states.

Start here: `extract` plans, computes the shards that are missing, checks a sample against float32, and publishes. The
work is cut into shards before it begins, so that a crash costs one shard and the bytes do not depend on it.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pipeline.backbones.init import linear_adapter
from pipeline.backbones.load import Backbone
from pipeline.costs.flops import TransformerSizes, forward_flops
from pipeline.costs.record import CostRecord, peak_memory_bytes
from pipeline.device import device_kind
from pipeline.errors import PermafrostError
from pipeline.extraction.fidelity import check_fidelity
from pipeline.extraction.forward import Reader, layer_names
from pipeline.extraction.plan import batches, distinct_rows
from pipeline.extraction.settings import CacheSettings
from pipeline.features.layout import Layout, plan_layout
from pipeline.features.store import SCHEMA
from pipeline.features.workspace import Workspace
from pipeline.features.write import create_store, write_shard
from pipeline.identity import file_digests, identity_hash, write_manifest
from pipeline.progress import progress
from pipeline.tasks.tokens import Tokens


@dataclass(frozen=True)
class Extraction:
    """One task under one backbone, planned: what will be computed and where each result goes.

    `origins[row]` is the (split, example) where a distinct input stands first; `rows` maps each split's examples to
    rows. `identity` decides the stored bytes on one kind of device.
    """

    tokens: Tokens
    backbone: Backbone
    settings: CacheSettings
    layout: Layout
    origins: list[tuple[str, int]]
    rows: dict[str, np.ndarray]
    identity: dict[str, Any]


def plan_extraction(tokens: Tokens, backbone: Backbone, settings: CacheSettings, names: dict[str, Any]) -> Extraction:
    """Decide everything before anything runs.

    `names` is the part of the identity that params.yaml gives: `task`, `backbone` and their entries.

    Raises:
        PermafrostError: an input is longer than the backbone's positions, a layer does not exist, or the task changes
            its images while training.
    """
    if tokens.augment is not None:
        raise PermafrostError(
            f"{tokens.task} is augmented ({tokens.augment}): no image is seen twice, so nothing can be cached",
            mend=f"set tasks.{tokens.task}.augment: none, or use the fine-tune alone",
        )
    if tokens.kind != "patches":
        raise PermafrostError(f"{tokens.task} is made of ids; the cache takes patches only so far")
    if tokens.length > backbone.spec.positions:
        raise PermafrostError(
            f"{tokens.task} has {tokens.length} tokens, the backbone has {backbone.spec.positions} positions",
            mend="make the task's inputs shorter or choose another backbone",
        )
    layers = layer_names(settings.layers, backbone.spec.layers)
    origins, rows = distinct_rows({name: np.asarray(split.inputs[:]) for name, split in tokens.splits.items()})
    sizes = (settings.storage_dtype, settings.shard_bytes, settings.chunk_bytes)
    layout = plan_layout(len(origins), tokens.readout, layers, backbone.spec.width, *sizes)
    identity = {**names, "schema": SCHEMA, "tokens": tokens.digest, "weights": backbone.weights}
    return Extraction(tokens, backbone, settings, layout, origins, rows, identity)


def extract(plan: Extraction, destination: Path, work: Path, device: torch.device, fresh: bool = False) -> CostRecord:
    """Compute what is missing of a plan and publish it at `destination`.

    Shards that an interrupted run finished, with the same identity, library versions and kind of device, are taken
    over unless `fresh`; `work` is where they lie. Bytes do not depend on interruptions.

    Raises:
        PermafrostError: another process writes the same features, a value does not fit the storage dtype, or a sample
            differs from float32 by more than the tolerance.
        OSError: the disk is full; finished shards are kept.
    """
    torch.set_num_threads(plan.settings.threads)
    made = {"versions": {"torch": torch.__version__, "numpy": np.__version__}, "device": device_kind(device)}
    with Workspace(work / "cache" / destination.name, identity_hash({**plan.identity, **made})) as workspace:
        if fresh:
            workspace.discard()
        if not workspace.store.exists():
            _create(plan, workspace.store)
        reader = _reader(plan, device)
        seconds = _compute_missing(plan, reader, workspace, device, destination.name)
        error = check_fidelity(reader, _inputs(plan, range(plan.layout.rows)), plan.settings.tolerance)
        _write_manifest(plan, workspace, fidelity=error, **made)
        workspace.publish(destination)
        workspace.prune()
    return _cost(plan, destination.name, seconds, device)


def _create(plan: Extraction, path: Path) -> None:
    partial = path.with_name("store.partial")
    partial.parent.mkdir(parents=True, exist_ok=True)
    splits = {name: {"row": rows, "labels": plan.tokens.splits[name].read_labels()} for name, rows in plan.rows.items()}
    attributes = {"classes": plan.tokens.classes, "dtype": plan.layout.dtype, "layers": list(plan.layout.layers)}
    create_store(partial, plan.layout, attributes, splits)
    partial.rename(path)


def _reader(plan: Extraction, device: torch.device) -> Reader:
    settings = plan.settings
    spec = plan.backbone.spec
    adapter = linear_adapter(plan.tokens.features, spec.width, settings.adapter_gain, settings.adapter_seed)
    network = plan.backbone.load().to(device, getattr(torch, settings.compute_dtype))
    return Reader(adapter.to(device), network, plan.layout.layers, plan.tokens.readout)


def _compute_missing(plan: Extraction, reader: Reader, workspace: Workspace, device: torch.device, name: str) -> float:
    """Compute the shards that are not done; the seconds that all shards took, also those of an interrupted run."""
    layout = plan.layout
    with progress(f"cache {name}", layout.rows, "rows") as report:
        total = 0.0
        for shard in range(layout.shards):
            file, rows = layout.file_of(shard), layout.rows_of(shard)
            done = workspace.done(shard, file)
            if done is None:
                start = time.perf_counter()
                _compute_shard(plan, reader, workspace.store, shard, device)
                done = {"seconds": time.perf_counter() - start}
                workspace.mark_done(shard, file, **done)
                report(len(rows), f"shard {shard + 1}/{layout.shards}")
            else:
                report(len(rows), f"shard {shard + 1}/{layout.shards} was done")
            total += done["seconds"]
    return total


def _compute_shard(plan: Extraction, reader: Reader, store: Path, shard: int, device: torch.device) -> None:
    tokens = plan.tokens
    states = [
        reader.read(torch.from_numpy(_inputs(plan, rows)).to(device)).cpu().numpy()
        for rows in batches(plan.layout, shard, tokens.length, plan.settings.batch_tokens)
    ]
    write_shard(store, plan.layout, shard, np.concatenate(states))


def _inputs(plan: Extraction, rows: range) -> np.ndarray:
    """The distinct inputs of some rows, normalised: `(row, token, feature)` float32."""
    arrays = {name: split.inputs for name, split in plan.tokens.splits.items()}
    picked = [plan.origins[row] for row in rows]
    parts = [
        np.asarray(arrays[name].oindex[np.array([example for split, example in picked if split == name])])
        for name in dict.fromkeys(split for split, _ in picked)
    ]
    return plan.tokens.normalise(np.concatenate(parts))


def _write_manifest(plan: Extraction, workspace: Workspace, **made: Any) -> None:
    counts = {"examples": {name: len(rows) for name, rows in plan.rows.items()}, "unique": plan.layout.rows}
    files = file_digests(workspace.store)
    extra = {"counts": counts, "layout": asdict(plan.layout), "floors": plan.tokens.floors, **made}
    write_manifest(workspace.store, plan.identity, files, **extra)


def _cost(plan: Extraction, key: str, seconds: float, device: torch.device) -> CostRecord:
    spec, tokens = plan.backbone.spec, plan.tokens
    sizes = TransformerSizes(
        spec.width,
        spec.layers,
        spec.inner_width,
        tokens.length,
        tokens.readout,
        tokens.features,
        tokens.answers // tokens.readout * tokens.classes,
    )
    return CostRecord(
        stage="cache",
        key=key,
        seconds=seconds,
        flops=plan.layout.rows * forward_flops(sizes),
        peak_bytes=peak_memory_bytes(),
        device=device_kind(device),
        examples=sum(len(rows) for rows in plan.rows.values()),
    )
