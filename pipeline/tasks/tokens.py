"""A task on disk: one Zarr group a split, read by the cache and by the fine-tune.

Layout of `data/tokens/<task>/`: attributes of the root say how to read it; `train`, `validation` and `test` each hold
`inputs`, `(example, token, feature)` patches or `(example, token)` ids, and `labels`, `(example, answer)`, in compact
integer dtypes; `manifest.json` comes last and holds the floors, which no later stage's numbers depend on.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import zarr
from jaxtyping import Float, Integer, Num, UInt8
from zarr.codecs import Crc32cCodec

from pipeline.identity import content_digest, file_digests, read_manifest, write_manifest
from pipeline.tasks.task import SPLITS, TaskData

SCHEMA = 1
CHUNK_BYTES = 4 * 2**20


@dataclass(frozen=True)
class TokenSplit:
    """One split as arrays on disk: slices of `inputs` and `labels` are read when asked for."""

    inputs: zarr.Array
    labels: zarr.Array

    def __len__(self) -> int:
        return self.inputs.shape[0]

    def read_labels(self) -> UInt8[np.ndarray, "example answer"]:
        """All labels."""
        return np.asarray(self.labels[:])


@dataclass(frozen=True)
class Tokens:
    """A task read from disk. `digest` identifies its content; `floors` are accuracies on test by name."""

    path: Path
    task: str
    kind: Literal["patches", "ids"]
    classes: int
    readout: int
    offset: float
    scale: float
    floors: dict[str, float]
    digest: str
    splits: dict[str, TokenSplit]

    @property
    def length(self) -> int:
        """Tokens of an example."""
        return self.splits["train"].inputs.shape[1]

    @property
    def features(self) -> int:
        """Numbers in a patch."""
        return self.splits["train"].inputs.shape[2]

    def normalise(self, stored: Num[np.ndarray, "example token feature"]) -> Float[np.ndarray, "example token feature"]:
        """Stored patches as the numbers a backbone's adapter sees."""
        return (stored.astype(np.float32) - np.float32(self.offset)) * np.float32(self.scale)


def write_tokens(path: Path, name: str, settings: dict[str, Any], task: TaskData, floors: dict[str, float]) -> None:
    """Write a task to `path`, replacing what is there; the manifest comes last.

    Args:
        path: the folder to make.
        name: the task's name in params.yaml.
        settings: its entry there: with the source's checksum it decides every byte.
        task: the examples.
        floors: accuracies on test of trivial predictors, by name.
    """
    shutil.rmtree(path, ignore_errors=True)
    root = zarr.create_group(path, attributes=_attributes(name, task))
    for split_name in SPLITS:
        split = task.splits[split_name]
        group = root.create_group(split_name)
        _write_array(group, "inputs", split.inputs)
        _write_array(group, "labels", split.labels)
    identity = {"schema": SCHEMA, "task": name, "settings": settings, "source": task.source}
    versions = {"zarr": zarr.__version__, "numpy": np.__version__}
    write_manifest(path, identity, file_digests(path), floors=floors, versions=versions)


def _attributes(name: str, task: TaskData) -> dict[str, Any]:
    attributes = {"task": name, "kind": task.kind, "classes": task.classes, "readout": task.readout}
    attributes |= {"offset": task.offset, "scale": task.scale, "source": task.source}
    return dict(sorted(attributes.items()))


def _write_array(group: zarr.Group, name: str, values: Integer[np.ndarray, "example ..."]) -> None:
    row_bytes = max(1, values[:1].nbytes)
    rows = max(1, min(len(values), CHUNK_BYTES // row_bytes))
    array = group.create_array(
        name,
        shape=values.shape,
        dtype=values.dtype,
        chunks=(rows, *values.shape[1:]),
        compressors=Crc32cCodec(),
        config={"write_empty_chunks": True},
    )
    array[:] = values


def open_tokens(path: Path) -> Tokens:
    """Open a task that `write_tokens` wrote.

    Raises:
        StaleArtifact: there is none, or it was never finished.
    """
    manifest = read_manifest(path, made_by=f"dvc repro prepare@{path.name}")
    root = zarr.open_group(path, mode="r")
    attributes: dict[str, Any] = dict(root.attrs)
    splits = {name: TokenSplit(_array(root, f"{name}/inputs"), _array(root, f"{name}/labels")) for name in SPLITS}
    return Tokens(
        path=path,
        digest=content_digest(manifest),
        floors=manifest["floors"],
        splits=splits,
        **{key: attributes[key] for key in ("task", "kind", "classes", "readout", "offset", "scale")},
    )


def _array(group: zarr.Group, name: str) -> zarr.Array:
    array = group[name]
    assert isinstance(array, zarr.Array)
    return array
