"""Long work says how far it is: a bar with a rate and an estimate on a terminal, a line per step elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable


@runtime_checkable
class Report(Protocol):
    """Called after each finished unit: how many items it held, and what else there is to say of it."""

    def __call__(self, items: int, note: str = "") -> None: ...


@contextmanager
def progress(what: str, total: int, unit: str) -> Iterator[Report]:
    """Show progress over `total` items on standard error.

    Args:
        what: the name of the work, e.g. `cache digits-minilm`.
        total: number of items.
        unit: their plural, e.g. `rows`.
    """
    if sys.stderr.isatty():
        with _bar(what, total, unit) as report:
            yield report
    else:
        yield _lines(what, total, unit)


@contextmanager
def _bar(what: str, total: int, unit: str) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=total, rate="")
        start = time.perf_counter()

        def report(items: int, note: str = "") -> None:
            done = bar.tasks[0].completed + items
            rate = f"{done / (time.perf_counter() - start):,.0f} {unit}/s {note}"
            bar.update(task, advance=items, rate=rate)

        yield report


def _lines(what: str, total: int, unit: str) -> Report:
    start = time.perf_counter()
    done = 0

    def report(items: int, note: str = "") -> None:
        nonlocal done
        done += items
        seconds = time.perf_counter() - start
        left = seconds / done * (total - done)
        line = f"{what}: {done:,}/{total:,} {unit}, {done / seconds:,.0f} {unit}/s, {_clock(left)} left"
        print(f"{line}, {note}" if note else line, file=sys.stderr, flush=True)

    return report


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
