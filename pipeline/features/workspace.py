"""The unfinished work of a feature store.

A shard is done when its marker `done/<shard>.json` exists and the shard's file still has the digest that the marker
names. Markers are written after the shard. Publishing links the files into place, so that the work is there for a rerun
and costs no disk twice.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from pipeline.identity import file_sha256, write_json
from pipeline.work import WorkFolder, work_key

CODE = ("backbones", "extraction", "features", "looped")
"""Packages whose code decides the bytes of a shard."""


def shard_key(identity: dict[str, Any], made: dict[str, Any]) -> str:
    """The `work_key` of a store: of its identity, and of what it is made with (versions, device, kernels).

    The tolerance decides whether a store is published and no byte of it, so that it is no part of the key.
    """
    settings = {name: value for name, value in identity.get("settings", {}).items() if name != "tolerance"}
    return work_key({**identity, "settings": settings, **made}, CODE)


class Workspace(WorkFolder):
    """The work folder of one feature store; `store` is the store as far as it is made."""

    @property
    def store(self) -> Path:
        """The store as far as it is made."""
        return self.folder / "store"

    def mark_done(self, shard: int, sha256: str, seconds: float, float32_rows: int) -> None:
        """Record that a shard is whole.

        Args:
            shard: its number.
            sha256: of its file.
            seconds: by the clock since the last one.
            float32_rows: how many of its rows were computed again in float32.
        """
        marker = {"sha256": sha256, "seconds": seconds, "float32_rows": float32_rows}
        write_json(self._marker(shard), marker)

    def done(self, shard: int, file: str) -> dict[str, Any] | None:
        """What `mark_done` recorded, or None when the shard must be computed (again)."""
        try:
            marker = json.loads(self._marker(shard).read_bytes())
            return marker if marker["sha256"] == file_sha256(self.store / file) else None
        except (FileNotFoundError, ValueError, KeyError):
            return None

    def markers(self, shards: range) -> dict[int, dict[str, Any]]:
        """What was recorded of each shard, without reading its file again.

        Raises:
            ValueError: a shard has no marker: it was never finished.
        """
        missing = [shard for shard in shards if not self._marker(shard).is_file()]
        if missing:
            raise ValueError(f"shards that were never finished: {missing}")
        return {shard: json.loads(self._marker(shard).read_bytes()) for shard in shards}

    def publish(self, destination: Path) -> None:
        """Put the finished store, its manifest included, at `destination`, whole or not at all.

        What is there is renamed away first and deleted last: a crash leaves the old store, none, or the new one.
        """
        partial, old = (destination.with_name(destination.name + end) for end in (".partial", ".old"))
        for left in (partial, old):
            shutil.rmtree(left, ignore_errors=True)
        destination.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(self.store, partial, copy_function=_link_or_copy)
        if destination.exists():
            destination.rename(old)
        partial.rename(destination)
        shutil.rmtree(old, ignore_errors=True)

    def _marker(self, shard: int) -> Path:
        return self.folder / "done" / f"{shard}.json"


def _link_or_copy(source: str, target: str) -> None:
    """Link shards; copy the small files, so that damage to the published ones cannot reach what repairs them."""
    if "c" not in Path(source).parts[-5:-3]:
        shutil.copy2(source, target)
        return
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without hard links
        shutil.copy2(source, target)
