"""What each task is: how it was made where paper and code differ, and what its scores stand against."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipeline.errors import PermafrostError
from pipeline.problem import CLASSIFICATION, problem_named

SPLITS = ("train", "validation", "test")
COLUMNS = ("task", "paper against code", "examples", "floors on test", "inputs that repeat", "on the way")


def task_cells(folder: Path, tasks: tuple[str, ...]) -> list[list[str]]:
    """A line for each task, from `metrics/tasks/`.

    Raises:
        PermafrostError: a task's file is missing.
    """
    return [_line(task, _read(folder / "metrics" / "tasks" / f"{task}.json", task)) for task in tasks]


def _line(task: str, found: dict[str, Any]) -> list[str]:
    parts = (
        found["choices"],
        {split: found["examples"][split] for split in SPLITS},
        _floors(found),
        {name: number for name, number in found["repeats"].items() if number},
        _flat(found["counts"]),
    )
    return [task, *(", ".join(f"{name} {value}" for name, value in part.items()) or "–" for part in parts)]


def _floors(found: dict[str, Any]) -> dict[str, str]:
    """Each floor's score; of a regression the mean squared error too, which it has also where R² is not defined."""
    problem, floors = problem_named(found.get("problem", CLASSIFICATION.name)), found["floors"]
    if problem == CLASSIFICATION:
        return {name: problem.cell(score) for name, score in floors.items()}
    return {name: f"{problem.said(floors.get(name))} (MSE {error:.4g})" for name, error in found["floors_mse"].items()}


def _flat(counts: dict[str, Any]) -> dict[str, Any]:
    """Counts by split (`{"dropped": {"train": 2}}`) as `dropped train 2`, names in words, without zeros."""
    flat: dict[str, Any] = {}
    for name, value in counts.items():
        by_split = value if isinstance(value, dict) else {"": value}
        flat |= {f"{name} {split}".replace("_", " ").strip(): count for split, count in by_split.items() if count}
    return flat


def _read(path: Path, task: str) -> dict[str, Any]:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise PermafrostError(f"{path} is missing", mend=f"dvc repro prepare@{task}") from error
