"""Holds a feature store against its manifest, file by file."""

from __future__ import annotations

from pathlib import Path

from pipeline.features.store import FeatureStore
from pipeline.identity import file_digests


def problems(store: FeatureStore) -> list[str]:
    """Every file that is missing, damaged or not the store's, as one line each; empty when the store is sound."""
    found, wanted = file_digests(store.path), store.manifest["files"]
    lines = [f"missing: {describe(store, name)}" for name in wanted if name not in found]
    lines += [f"damaged: {describe(store, name)}" for name in wanted if name in found and found[name] != wanted[name]]
    return lines + [f"foreign: {name}" for name in found if name not in wanted]


def describe(store: FeatureStore, file: str) -> str:
    """A file of the store in words: for a shard, which rows it holds."""
    parts = Path(file).parts
    if parts[:2] != ("features", "c"):
        return file
    shard, size = int(parts[2]), store.manifest["layout"]["shard_rows"]
    last = min((shard + 1) * size, store.shape[0]) - 1
    return f"{file} (shard {shard}, rows {shard * size} to {last})"
