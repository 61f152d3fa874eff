"""Holds a feature store against its manifest, file by file."""

from __future__ import annotations

from pathlib import Path

from pipeline.features.store import FeatureStore
from pipeline.identity import file_digests


def broken_files(store: FeatureStore) -> set[str]:
    """The store's own files that are missing or differ from their digest."""
    found, wanted = file_digests(store.path), store.manifest["files"]
    return {name for name in wanted if found.get(name) != wanted[name]}


def problems(store: FeatureStore) -> list[str]:
    """Every file that is missing, damaged or not the store's, as one line each; empty when the store is sound."""
    found, wanted = file_digests(store.path), store.manifest["files"]
    lines = [f"missing: {describe(store, name)}" for name in wanted if name not in found]
    lines += [f"damaged: {describe(store, name)}" for name in wanted if name in found and found[name] != wanted[name]]
    return lines + [f"foreign: {name}" for name in found if name not in wanted]


def shard_of(file: str) -> int | None:
    """The number of the shard that a file of the store holds; None for its other files."""
    parts = Path(file).parts
    return int(parts[2]) if parts[:2] == ("features", "c") else None


def describe(store: FeatureStore, file: str) -> str:
    """A file of the store in words: for a shard, which rows it holds."""
    shard, size = shard_of(file), store.manifest["layout"]["shard_rows"]
    if shard is None:
        return file
    last = min((shard + 1) * size, store.shape[0]) - 1
    return f"{file} (shard {shard}, rows {shard * size} to {last})"
