"""Unfinished work that survives a crash: kept outside DVC's outputs, which DVC deletes before a stage runs.

Work belongs to one artifact and one way to make it, `<work>/<artifact>/<key>/`, and is held by one process at a time.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from filelock import FileLock, Timeout

from pipeline.errors import PermafrostError
from pipeline.identity import file_sha256, identity_hash

Held = TypeVar("Held", bound="WorkFolder")


def work_key(made: dict[str, Any], packages: tuple[str, ...]) -> str:
    """What unfinished work must share to be taken over: all that decides its bytes, and the code that computes them.

    The code, that of `packages` of the pipeline, is in no manifest: a comment makes old work useless, but not a
    finished artifact.
    """
    return identity_hash({**made, "code": code_digest(packages)})


def code_digest(packages: tuple[str, ...]) -> str:
    """A digest of the code of some of the pipeline's packages."""
    pipeline = Path(__file__).resolve().parent
    files = [path for package in packages for path in (pipeline / package).rglob("*.py")]
    return identity_hash({path.relative_to(pipeline).as_posix(): file_sha256(path) for path in files})


class WorkBusy(PermafrostError):
    """Another process is making the same artifact."""


class WorkFolder:
    """The work of one artifact under one key. Use as a context manager.

    It takes an exclusive lock, which the kernel releases however the process ends.
    """

    def __init__(self, root: Path, key: str) -> None:
        """`root` is the artifact's folder for work; within it each `work_key` has a folder of its own."""
        self.root = root
        self.folder = root / key[:16]
        self._lock = FileLock(root / "lock", blocking=False)

    def __enter__(self: Held) -> Held:
        """Lock and sweep away what a killed writer left.

        Raises:
            WorkBusy: the lock is held.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire()
        except Timeout as error:
            raise WorkBusy(
                f"another process is at work in {self.root}",
                mend="wait for it (a killed `dvc` leaves its child running: see `ps`), then run again",
            ) from error
        self.sweep()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lock; the work stays."""
        self._lock.release()

    def sweep(self) -> None:
        """Remove what a killed writer left half written: a run before, or a worker of this one."""
        for partial in self.root.rglob("*.partial"):
            shutil.rmtree(partial) if partial.is_dir() else partial.unlink()

    def discard(self) -> None:
        """Throw away this key's work, finished or not."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def prune(self) -> None:
        """Remove this artifact's work under other keys."""
        for folder in self.root.iterdir():
            if folder.is_dir() and folder != self.folder:
                shutil.rmtree(folder)
