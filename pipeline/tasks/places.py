"""Where files may be put. Places change no number, so they are options of the stage and never in params.yaml."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory


@dataclass(frozen=True)
class Places:
    """`cache` keeps downloads, `work` holds scratch files of one run; `offline` forbids any download."""

    cache: Path = Path("data/downloads")
    work: Path = Path(".permafrost/prepare")
    offline: bool = False


HERE = Places()
"""The places below the folder that the command runs in."""


@contextmanager
def scratch(places: Places, task: str) -> Iterator[Places]:
    """The same places with a work folder of this run's own, which is gone afterwards, also after an error."""
    places.work.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=places.work, prefix=f"prepare-{task}-") as folder:
        yield replace(places, work=Path(folder))
