"""Unfinished work that survives a crash: kept outside DVC's outputs, which DVC deletes before a stage runs.

A workspace belongs to one artifact and one way to make it: `<work>/<artifact>/<work key>/`. A shard is done when its
marker `done/<shard>.json` exists and the shard's file still has the digest that the marker names. Markers are written
after the shard. Publishing links the files into place, so that the work is there for a rerun and costs no disk twice.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any

from filelock import FileLock, Timeout

from pipeline.errors import PermafrostError
from pipeline.identity import file_sha256, identity_hash, write_json

CODE = ("backbones", "extraction", "features")
"""Packages whose code decides the bytes of a shard."""


def work_key(identity: dict[str, Any], made: dict[str, Any]) -> str:
    """What unfinished work must share to be taken over: identity, versions and device, and the code that computes.

    The code is in the key and not in the manifest: a comment makes old work useless, but not a finished store.
    """
    pipeline = Path(__file__).resolve().parents[1]
    code = {
        f"{package}/{path.name}": file_sha256(path) for package in CODE for path in (pipeline / package).glob("*.py")
    }
    return identity_hash({**identity, **made, "code": code})


class WorkspaceBusy(PermafrostError):
    """Another process is writing the same artifact."""


class Workspace:
    """The work folder of one artifact, held by one process at a time.

    Use as a context manager: it takes an exclusive lock, which the kernel releases however the process ends.
    """

    def __init__(self, root: Path, key: str) -> None:
        """`root` is the artifact's folder for work; within it each `work_key` has a folder of its own."""
        self.root = root
        self.folder = root / key[:16]
        self.store = self.folder / "store"
        self._lock = FileLock(root / "lock", blocking=False)

    def __enter__(self) -> Workspace:
        """Lock and sweep away what a killed writer left.

        Raises:
            WorkspaceBusy: the lock is held.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire()
        except Timeout as error:
            raise WorkspaceBusy(
                f"another process is writing {self.root}",
                mend="wait for it (a killed `dvc` leaves its child running: see `ps`), then run again",
            ) from error
        for partial in self.root.rglob("*.partial"):
            shutil.rmtree(partial) if partial.is_dir() else partial.unlink()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lock; the work stays."""
        self._lock.release()

    def discard(self) -> None:
        """Throw away this identity's work, finished or not."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def mark_done(self, shard: int, sha256: str, seconds: float) -> None:
        """Record that a shard is whole: the digest of its file, and the seconds that it took."""
        write_json(self._marker(shard), {"sha256": sha256, "seconds": seconds})

    def done(self, shard: int, file: str) -> dict[str, Any] | None:
        """What `mark_done` recorded, or None when the shard must be computed (again)."""
        try:
            marker = json.loads(self._marker(shard).read_bytes())
            return marker if marker["sha256"] == file_sha256(self.store / file) else None
        except (FileNotFoundError, ValueError, KeyError):
            return None

    def digests(self, files: dict[int, str]) -> dict[str, str]:
        """The recorded sha256 of each shard's file, without reading it again.

        Raises:
            ValueError: a shard has no marker: it was never finished.
        """
        missing = [shard for shard in files if not self._marker(shard).is_file()]
        if missing:
            raise ValueError(f"shards that were never finished: {missing}")
        return {file: json.loads(self._marker(shard).read_bytes())["sha256"] for shard, file in files.items()}

    def publish(self, destination: Path) -> None:
        """Put the finished store, its manifest included, at `destination` in one rename, replacing what is there."""
        partial = destination.with_name(destination.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        destination.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(self.store, partial, copy_function=_link_or_copy)
        shutil.rmtree(destination, ignore_errors=True)
        partial.rename(destination)

    def prune(self) -> None:
        """Remove this artifact's work for other identities."""
        for folder in self.root.iterdir():
            if folder.is_dir() and folder != self.folder:
                shutil.rmtree(folder)

    def _marker(self, shard: int) -> Path:
        return self.folder / "done" / f"{shard}.json"


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without hard links
        shutil.copy2(source, target)
