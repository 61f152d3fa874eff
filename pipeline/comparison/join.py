"""Joins what each method scored with what it cost: one row for each task × backbone × method."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pipeline.costs.record import CostRecord
from pipeline.errors import PermafrostError

Method = Literal["probe", "finetune"]


@dataclass(frozen=True)
class Row:
    """One method on one task with one backbone.

    `flops` and `seconds` are all that it took to get the accuracy: for a probe that is filling the cache and fitting
    the whole path of penalties. The `..._per_epoch` are what one more pass over the training examples costs once that
    is done. `break_even_epochs`, on a probe's row, is the number of FPT epochs that cost as much as filling the cache.
    """

    task: str
    backbone: str
    method: Method
    accuracy: float
    low: float
    high: float
    floors: dict[str, float]
    trained_parameters: int
    epochs: float
    flops: int
    flops_per_epoch: float
    seconds: float
    seconds_per_epoch: float
    device: str
    break_even_epochs: float | None = None

    @property
    def best_floor(self) -> tuple[str, float]:
        """The trivial predictor that scores highest on this task."""
        return max(self.floors.items(), key=lambda floor: floor[1])

    @property
    def below_floor(self) -> bool:
        """Whether a trivial predictor does better."""
        return self.accuracy < self.best_floor[1]


@dataclass(frozen=True)
class Programmed:
    """A task that the looped transformer solves by a program: no training, no cache, weights set by hand.

    Plain Python writes each example into the network's input, as a program with its data; the network runs it.
    """

    task: str
    accuracy: float
    examples: int
    layers: int
    width: int
    passes: int
    flops_per_example: int


def programmed(folder: Path) -> list[Programmed]:
    """The tasks that `metrics/programs.json` holds.

    Raises:
        PermafrostError: the file is missing.
    """
    path = folder / "metrics" / "programs.json"
    if not path.is_file():
        raise PermafrostError(f"{path} is missing", mend="dvc repro programs")
    rows = [row for row in json.loads(path.read_bytes()) if row["kind"] == "task"]
    return [
        Programmed(
            row["name"],
            row["accuracy"],
            row["examples"],
            row["layers"],
            row["width"],
            row["steps"],
            row["flops_per_example"],
        )
        for row in rows
    ]


def join(folder: Path, tasks: tuple[str, ...], backbones: tuple[str, ...]) -> list[Row]:
    """Read `metrics/` and `data/cost/` below `folder` and join them, in the order of the grid.

    Raises:
        PermafrostError: a result of the grid is missing.
    """
    rows = []
    for task in tasks:
        for backbone in backbones:
            rows += _pair(folder, task, backbone)
    return rows


def _pair(folder: Path, task: str, backbone: str) -> list[Row]:
    key = f"{task}-{backbone}"
    cache, probe, finetune = (_cost(folder, stage, key) for stage in ("cache", "probe", "finetune"))
    probed, tuned = (
        _read(folder / "metrics" / method / f"{key}.json", method, key) for method in ("probe", "finetune")
    )
    probe_epoch, finetune_epoch = _seconds_per_epoch(probe), _seconds_per_epoch(finetune)
    epochs = tuned["examples_seen"] / finetune.examples
    return [
        Row(
            task,
            backbone,
            "probe",
            **_accuracy(probed),
            epochs=float(probed["epochs"]),
            flops=cache.flops + probe.flops,
            flops_per_epoch=probe.flops / probed["epochs"],
            seconds=cache.seconds + probe.seconds,
            seconds_per_epoch=probe_epoch,
            device=cache.device,
            break_even_epochs=cache.seconds / max(finetune_epoch - probe_epoch, 1e-9),
        ),
        Row(
            task,
            backbone,
            "finetune",
            **_accuracy(tuned),
            epochs=epochs,
            flops=finetune.flops,
            flops_per_epoch=finetune.flops / epochs,
            seconds=finetune.seconds,
            seconds_per_epoch=finetune_epoch,
            device=finetune.device,
        ),
    ]


def _accuracy(metrics: dict[str, Any]) -> dict[str, Any]:
    low, high = wilson_interval(metrics["test_accuracy"], metrics["test_answers"])
    kept = {name: metrics[name] for name in ("floors", "trained_parameters")}
    return {"accuracy": metrics["test_accuracy"], "low": low, "high": high, **kept}


def wilson_interval(accuracy: float, answers: int) -> tuple[float, float]:
    """The 95 % interval of a share, by Wilson's score (1927); answers count as independent."""
    z = 1.959963984540054
    center = accuracy + z * z / (2 * answers)
    spread = z * math.sqrt(accuracy * (1 - accuracy) / answers + z * z / (4 * answers * answers))
    scale = 1 + z * z / answers
    return (center - spread) / scale, (center + spread) / scale


def _cost(folder: Path, stage: str, key: str) -> CostRecord:
    return CostRecord(**_read(folder / "data" / "cost" / f"{stage}-{key}.json", stage, key))


def _seconds_per_epoch(cost: CostRecord) -> float:
    if cost.seconds_per_epoch is None:
        raise ValueError(f"{cost.stage} {cost.key} has no epochs")
    return cost.seconds_per_epoch


def _read(path: Path, stage: str, key: str) -> dict[str, Any]:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise PermafrostError(f"{path} is missing", mend=f"dvc repro {stage}@{key}") from error
