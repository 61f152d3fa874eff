"""Writes a task to disk shard by shard: memory is that of one shard, whatever the number of examples."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec

from pipeline.identity import file_digests, write_manifest
from pipeline.problem import problem_of
from pipeline.tasks.layout import Layout, plan
from pipeline.tasks.repeats import content_hashes, count_repeats
from pipeline.tasks.task import SPLITS, STORED, Block, Split, TaskData

SCHEMA = 2


def write_tokens(
    path: Path, name: str, settings: dict[str, Any], task: TaskData, floors: dict[str, float], **notes: Any
) -> dict[str, Any]:
    """Write a task to `path`, replacing what is there; the manifest comes last and is returned.

    Args:
        path: the folder to make.
        name: the task's name in params.yaml.
        settings: its entry there: with the source's checksum it decides every byte.
        task: the examples.
        floors: scores on test of trivial predictors, by name.
        notes: more for the manifest, e.g. how the floors were found.
    """
    shutil.rmtree(path, ignore_errors=True)
    attributes = {"task": name, **{key: getattr(task, key) for key in STORED}}
    root = zarr.create_group(path, attributes=dict(sorted(attributes.items())))
    hashes = {split: _write_split(root.create_group(split), task.splits[split]) for split in SPLITS}
    identity = {"schema": SCHEMA, "task": name, "settings": settings, "source": task.source}
    return write_manifest(
        path,
        identity,
        file_digests(path),
        problem=problem_of(task.classes).name,
        floors=floors,
        repeats=count_repeats(hashes),
        examples={split: len(task.splits[split]) for split in SPLITS},
        counts=task.counts,
        versions={"zarr": zarr.__version__, "numpy": np.__version__},
        **notes,
    )


def _write_split(group: zarr.Group, split: Split) -> zarr.Array:
    """Write one split and return the array of its content hashes."""
    columns = _columns(split.read(0, 0))
    row_bytes = max(_row_bytes(values) for values in columns.values())
    layout = plan(len(split), row_bytes)
    arrays = {name: _create(group, name, len(split), values, layout) for name, values in columns.items()}
    for start in range(0, len(split), layout.shard):
        stop = min(start + layout.shard, len(split))
        for name, values in _columns(split.read(start, stop)).items():
            arrays[name][start:stop] = values
    return arrays["content"]


def _row_bytes(values: np.ndarray) -> int:
    return int(np.prod(values.shape[1:], dtype=np.int64)) * values.dtype.itemsize


def _columns(block: Block) -> dict[str, np.ndarray]:
    """A block's arrays by the name they have on disk."""
    columns = {"inputs": block.inputs, "labels": block.labels, "content": content_hashes(block)}
    optional = {"lengths": block.lengths, "flags": block.flags}
    return columns | {name: values for name, values in optional.items() if values is not None}


def _create(group: zarr.Group, name: str, examples: int, values: np.ndarray, layout: Layout) -> zarr.Array:
    return group.create_array(
        name,
        shape=(examples, *values.shape[1:]),
        dtype=values.dtype,
        chunks=(layout.chunk, *values.shape[1:]),
        shards=(layout.shard, *values.shape[1:]),
        compressors=Crc32cCodec(),
        config={"write_empty_chunks": True},
    )
