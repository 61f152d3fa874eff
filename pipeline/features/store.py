"""Reads a feature store: any rows, any layers, without loading the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from jaxtyping import Float32, Integer, Num

from pipeline.features.dtypes import StorageDtype, decode
from pipeline.identity import StaleArtifact, read_manifest, require_identity

SCHEMA = 1


class FeatureStore:
    """The hidden states of one task under one backbone. Made by `open_features`."""

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path = path
        self.manifest = manifest
        self._root = zarr.open_group(path, mode="r")
        self.attributes: dict[str, Any] = dict(self._root.attrs)
        self.layers: list[str] = self.attributes["layers"]
        self.dtype: StorageDtype = self.attributes["dtype"]
        self.shape: tuple[int, ...] = self._array("features").shape
        self._rows: dict[str, np.ndarray] = {}

    def rows(self, split: str) -> Integer[np.ndarray, "example"]:
        """Which row of `features` each example of the split is; equal inputs share one."""
        if split not in self._rows:
            self._rows[split] = self._small(f"{split}/row")
        return self._rows[split]

    def labels(self, split: str) -> Num[np.ndarray, "example answer"]:
        """The answers of a split: class numbers, or numbers of any kind where `attributes["classes"]` is 0."""
        return self._small(f"{split}/labels")

    def read(
        self,
        split: str,
        rows: slice | Sequence[int] | np.ndarray | None = None,
        layers: Sequence[str] | None = None,
    ) -> Float32[np.ndarray, "example readout layer width"]:
        """Features of a split's examples.

        Args:
            split: `train`, `validation` or `test`.
            rows: which of the split's examples, in that order; all when None.
            layers: which layers by name, in that order; all when None.

        Raises:
            KeyError: there is no such split or layer.
            StaleArtifact: a chunk fails its checksum.
        """
        wanted = self.rows(split)[slice(None) if rows is None else rows]
        unique, inverse = np.unique(wanted, return_inverse=True)
        picked = slice(None) if layers is None else [self._layer(name) for name in layers]
        with self._says_damage():
            stored = self._read_rows(unique)
        return decode(stored[:, :, picked][inverse], self.dtype)

    def dask(self, split: str) -> Any:
        """A split's features as a dask array `(example, readout, layer, width)` of float32.

        Where a split's examples are rows in a run, as without duplicates, its blocks end where shards end, so that no
        shard is read by two tasks.
        """
        import dask.array as da

        stored = da.from_zarr(self._array("features"), chunks=self._array("features").shards)
        rows = self.rows(split)
        run = len(rows) > 0 and bool((np.diff(rows) == 1).all())
        picked = stored[int(rows[0]) : int(rows[-1]) + 1] if run else stored[rows]
        return picked.map_blocks(decode, self.dtype, dtype=np.float32)

    def _read_rows(self, unique: np.ndarray) -> np.ndarray:
        """Stored values of sorted rows; a run without gaps is read as one slice."""
        features = self._array("features")
        if len(unique) and unique[-1] - unique[0] + 1 == len(unique):
            return np.asarray(features[int(unique[0]) : int(unique[-1]) + 1])
        return np.asarray(features.oindex[unique])

    def _small(self, name: str) -> np.ndarray:
        array = self._array(name)
        with self._says_damage():
            return np.asarray(array[:])

    @contextmanager
    def _says_damage(self) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            raise StaleArtifact(
                f"{self.path} is damaged: {error}", mend=f"python -m pipeline.features verify {self.path}"
            ) from error

    def _layer(self, name: str) -> int:
        if name not in self.layers:
            raise KeyError(f"{self.path} has no layer {name!r}; it holds {', '.join(self.layers)}")
        return self.layers.index(name)

    def _array(self, name: str) -> zarr.Array:
        array = self._root[name]
        if not isinstance(array, zarr.Array):
            raise KeyError(f"{self.path} has no array {name!r}")
        return array


def open_features(path: str | Path, expect: dict[str, Any] | None = None, whole: bool = True) -> FeatureStore:
    """Open a finished feature store.

    Args:
        path: the store, e.g. `data/features/digits-minilm`.
        expect: a part of the identity that it must have, e.g. `{"task": "digits"}`.
        whole: refuse a store that lacks a file, which Zarr would read as zeros.

    Raises:
        StaleArtifact: there is no finished store, it was edited, a file is missing or empty, or it was made from
            something else.
    """
    path = Path(path)
    made_by = f"dvc repro cache@{path.name}"
    manifest = read_manifest(path, made_by)
    require_identity(path, manifest, {"schema": SCHEMA, **(expect or {})}, made_by)
    lacking = [name for name in manifest["files"] if not (path / name).is_file() or not (path / name).stat().st_size]
    if whole and lacking:
        raise StaleArtifact(
            f"{path} is damaged: {', '.join(lacking[:3])} missing or empty ({len(lacking)} of its files)",
            mend=f"python -m pipeline.features repair {path}",
        )
    return FeatureStore(path, manifest)
