"""A run that was killed goes on from its state on disk.

A checkpoint is written under another name, flushed, then renamed; the last two are kept, so that one is whole whenever
the process dies.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch

from pipeline.identity import write_atomically
from pipeline.work import WorkFolder

CODE = ("backbones", "finetune", "tasks")
"""Packages whose code decides the bits of a run."""
KEPT = 2


class Checkpoints(WorkFolder):
    """The checkpoints of one run."""

    def __init__(self, root: Path, key: str, every: int) -> None:
        """`root` is the folder of one artifact; `every` is the number of steps from one checkpoint to the next."""
        super().__init__(root, key)
        self.every = every

    def due(self, step: int) -> bool:
        """Whether a checkpoint is written after `step`."""
        return step % self.every == 0

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Write the state after `step`; tensors and plain values only."""
        buffer = io.BytesIO()
        self.folder.mkdir(exist_ok=True)
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

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("*.pt"))
