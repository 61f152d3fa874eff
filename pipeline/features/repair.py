"""Takes the sound shards of a damaged store into the work folder, so that only the others are computed again."""

from __future__ import annotations

import shutil
from pathlib import Path

from pipeline.features.store import FeatureStore
from pipeline.features.verify import Faults, shard_of
from pipeline.features.workspace import Workspace, shard_key


def salvage(store: FeatureStore, faults: Faults, work: Path) -> list[int]:
    """Make every sound shard count as done for the next run of `cache`; the shards that it will have to compute.

    `faults` are what `check` found. A store whose small files (shape, labels, rows) are damaged gives nothing up: it is
    then made anew from what the work folder still holds.

    Raises:
        WorkBusy: another process is writing these features.
    """
    manifest = store.manifest
    made = {name: manifest[name] for name in ("versions", "device", "kernels")}
    shards = {shard_of(file): file for file in manifest["files"] if shard_of(file) is not None}
    broken = {*faults.missing, *faults.damaged}
    key = shard_key(manifest["identity"], made)
    with Workspace(work / "cache" / store.path.name, key) as workspace:
        if not workspace.store.exists() and all(shard_of(file) is not None for file in broken):
            partial = workspace.folder / "store.partial"
            for file in manifest["files"]:
                if shard_of(file) is None:
                    (partial / file).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(store.path / file, partial / file)
            partial.rename(workspace.store)
        lost = []
        for shard, file in sorted((shard, file) for shard, file in shards.items() if shard is not None):
            if workspace.done(shard, file) is None:
                if file in broken or not workspace.store.exists():
                    lost.append(shard)
                    continue
                target = workspace.store / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(store.path / file, target)
                again = manifest["counts"].get("float32_rows", {}).get(str(shard), 0)
                workspace.mark_done(shard, manifest["files"][file], seconds=0.0, float32_rows=again)
    return lost
