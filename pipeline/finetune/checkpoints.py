"""A run that was killed goes on: its state on disk, outside DVC's outputs, which DVC deletes before a stage runs.

The folder belongs to one run by the hash of everything that decides its numbers. A checkpoint is written under another
name, flushed, then renamed; the last two are kept, so that one is whole whenever the process dies.
"""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from filelock import FileLock, Timeout

from pipeline.errors import PermafrostError
from pipeline.identity import identity_hash, write_atomically

KEPT = 2


class RunBusy(PermafrostError):
    """Another process is training the same run."""


class Checkpoints:
    """The checkpoints of one run, held by one process at a time. Use as a context manager."""

    def __init__(self, root: Path, identity: dict[str, Any], every: int) -> None:
        """`root` is the folder of one artifact; `every` is the number of steps from one checkpoint to the next."""
        self.root, self.every = root, every
        self.folder = root / identity_hash(identity)[:16]
        self._lock = FileLock(root / "lock", blocking=False)

    def __enter__(self) -> Checkpoints:
        """Lock, and sweep away what a killed writer left and what belongs to other settings.

        Raises:
            RunBusy: the lock is held.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire()
        except Timeout as error:
            raise RunBusy(
                f"another process is training in {self.root}",
                mend="wait for it (a killed `dvc` leaves its child running: see `ps`), then run again",
            ) from error
        for other in self.root.iterdir():
            if other.is_dir() and other != self.folder:
                shutil.rmtree(other)
        self.folder.mkdir(exist_ok=True)
        for partial in self.folder.glob("*.partial"):
            partial.unlink()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lock; the checkpoints stay."""
        self._lock.release()

    def due(self, step: int) -> bool:
        """Whether a checkpoint is written after `step`."""
        return step % self.every == 0

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Write the state after `step`; tensors and plain values only."""
        buffer = io.BytesIO()
        torch.save(state, buffer)
        write_atomically(self.folder / f"{step:09d}.pt", buffer.getvalue())
        for old in self._files()[:-KEPT]:
            old.unlink()

    def load(self) -> dict[str, Any] | None:
        """The newest state that can be read (never unpickled), or None."""
        for path in reversed(self._files()):
            try:
                return torch.load(path, map_location="cpu", weights_only=True)
            except (RuntimeError, EOFError, ValueError, OSError):
                continue  # damaged on disk: the one before it will do
        return None

    def discard(self) -> None:
        """Throw the checkpoints away, once the run's results are written."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("*.pt"))
