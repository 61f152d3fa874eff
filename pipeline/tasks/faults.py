"""What is wrong with a source: a missing file, a broken one, or single rows that cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pipeline.errors import PermafrostError

OnBadRow = Literal["stop", "skip"]
LISTED = 1000
"""Bad rows that are listed one by one; all are counted."""


class MissingSource(PermafrostError):
    """A file that a task needs is nowhere: which one, and where it was looked for."""


class BrokenSource(PermafrostError):
    """A file that is not what it should be: which one, at which row where there is one, and why."""


class BadRows:
    """Rows that cannot be used: the first one stops the run, or they are skipped, counted and listed."""

    def __init__(self, policy: OnBadRow) -> None:
        self.policy = policy
        self.count = 0
        self.listed: list[str] = []

    def add(self, path: Path, where: str, reason: str) -> None:
        """Note a bad row; `where` is like `row 3` or `line 4`.

        Raises:
            BrokenSource: the policy is "stop".
        """
        line = f"{path}, {where}: {reason}"
        if self.policy == "stop":
            raise BrokenSource(line, mend="repair the row, or set on_bad_row: skip to leave such rows out")
        self.count += 1
        if len(self.listed) < LISTED:
            self.listed.append(line)

    def counts(self) -> dict[str, Any]:
        """What goes into the manifest; empty when every row was good."""
        return {"bad_rows": {"count": self.count, "listed": self.listed}} if self.count else {}
