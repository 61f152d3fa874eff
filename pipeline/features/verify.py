"""Holds a feature store against its manifest, file by file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipeline.features.store import FeatureStore
from pipeline.identity import file_digests


@dataclass(frozen=True)
class Faults:
    """Files of a store that are not as its manifest says, by name."""

    missing: list[str]
    damaged: list[str]
    foreign: list[str]

    def __bool__(self) -> bool:
        return bool(self.missing or self.damaged or self.foreign)

    def lines(self, store: FeatureStore) -> list[str]:
        """One line a file; of a shard also which rows it holds."""
        own = {"missing": self.missing, "damaged": self.damaged}
        lines = [f"{fault}: {describe(store, name)}" for fault, names in own.items() for name in names]
        return lines + [f"foreign: {name}" for name in self.foreign]


def check(store: FeatureStore) -> Faults:
    """Read every file of the store once and compare digests; the result is false when the store is sound."""
    found, wanted = file_digests(store.path), store.manifest["files"]
    return Faults(
        missing=[name for name in wanted if name not in found],
        damaged=[name for name in wanted if name in found and found[name] != wanted[name]],
        foreign=[name for name in found if name not in wanted],
    )


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
