"""Joins what each method scored with what it cost: one row for each task × backbone × method."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pipeline.costs.amortised import amortised, break_even
from pipeline.costs.record import CostRecord, MethodCost
from pipeline.errors import PermafrostError
from pipeline.problem import Problem, problem_in

Standing = Literal["above", "below", "not told apart from"]
Method = Literal["logistic", "ridge", "knn", "sgd", "head2toe", "finetune"]
METHODS: dict[Method, str] = {
    "logistic": "logistic probe",
    "ridge": "ridge probe",
    "knn": "nearest neighbours",
    "sgd": "the paper's probe (Adam)",
    "head2toe": "probe on chosen features of all layers",
    "finetune": "full FPT fine-tune",
}
SHARED_BY = 10
"""Probes that share one cache in the column of amortised costs."""


@dataclass(frozen=True)
class Row:
    """One method on one task with one backbone.

    `score` on test is the `problem`'s, accuracy or R², and so are the ends of its 95 % interval and the floors.
    `flops` and `seconds` are all that it took to get it: for a probe that is filling the cache and fitting the whole
    path of penalties on every layer. The `..._per_epoch` are what one more pass over the training examples costs once
    that is done, None for what has no epochs. On a probe's row, `break_even_epochs` is the number of FPT epochs that
    cost as much as filling the cache, `break_even_probes` the number of fine-tunes (each in place of a probe) that do,
    and `amortised_seconds` what each of `SHARED_BY` probes on the same cache costs. `status` is the fit's, `recipe` the
    fine-tune's variant.
    """

    task: str
    backbone: str
    method: Method
    problem: Problem
    score: float
    low: float
    high: float
    floors: dict[str, float]
    trained_parameters: int
    epochs: float
    flops: int
    flops_per_epoch: float | int | None
    seconds: float
    seconds_per_epoch: float | None
    device: str
    status: str = "fitted"
    recipe: str = ""
    break_even_epochs: float | None = None
    break_even_probes: float | None = None
    amortised_seconds: float | None = None

    @property
    def best_floor(self) -> tuple[str, float]:
        """The trivial predictor that scores highest on this task."""
        return max(self.floors.items(), key=lambda floor: floor[1])

    @property
    def below_floor(self) -> bool:
        """Whether a trivial predictor does better."""
        return self.score < self.best_floor[1]

    @property
    def standing(self) -> Standing:
        """Where the whole interval is to the best floor."""
        floor = self.best_floor[1]
        if self.low <= floor <= self.high:
            return "not told apart from"
        return "below" if self.below_floor else "above"

    @property
    def label(self) -> str:
        """The method in words."""
        return METHODS[self.method]


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
    """The probes' rows in the order in which they ran, then the fine-tune's; what was not scored has no row."""
    key = f"{task}-{backbone}"
    cache, probe, finetune = (_cost(folder, stage, key) for stage in ("cache", "probe", "finetune"))
    probed, tuned = (
        _read(folder / "metrics" / method / f"{key}.json", method, key) for method in ("probe", "finetune")
    )
    rows = []
    for method, metrics in {probed["method"]: probed, **probed["methods"]}.items():
        if metrics[problem_in(metrics).test] is not None:
            spent = _probe_cost(metrics, cache, probe.methods[method], finetune)
            rows.append(Row(task, backbone, method, **_score(metrics | {"floors": probed["floors"]}), **spent))
    if tuned[problem_in(tuned).test] is not None:
        epochs = tuned["examples_seen"] / finetune.examples
        rows.append(
            Row(
                task,
                backbone,
                "finetune",
                **_score(tuned),
                **_finetune_cost(finetune, epochs),
                recipe=tuned["recipe"],
            )
        )
    return rows


def _finetune_cost(finetune: CostRecord, epochs: float) -> dict[str, Any]:
    return {
        "epochs": epochs,
        "flops": finetune.flops,
        "flops_per_epoch": finetune.flops / epochs,
        "seconds": finetune.seconds,
        "seconds_per_epoch": finetune.seconds_per_epoch,
        "device": finetune.device,
    }


def _probe_cost(metrics: dict[str, Any], cache: CostRecord, cost: MethodCost, finetune: CostRecord) -> dict[str, Any]:
    epoch, theirs = cost.seconds_per_epoch, finetune.seconds_per_epoch
    return {
        "epochs": float(metrics["epochs"]),
        "flops": cache.flops + cost.flops,
        "flops_per_epoch": cost.flops_per_epoch,
        "seconds": cache.seconds + cost.seconds,
        "seconds_per_epoch": epoch,
        "device": cache.device,
        "status": metrics["status"],
        "break_even_epochs": None if epoch is None or theirs is None else break_even(cache.seconds, epoch, theirs),
        "break_even_probes": break_even(cache.seconds, cost.seconds, finetune.seconds),
        "amortised_seconds": amortised(cache.seconds, cost.seconds, SHARED_BY),
    }


def _score(metrics: dict[str, Any]) -> dict[str, Any]:
    """The score with its stage's interval; R² of a test split that hardly varies may have none."""
    problem = problem_in(metrics)
    score = metrics[problem.test]
    low, high = metrics["test_interval"] or (score, score)
    kept = {name: metrics[name] for name in ("floors", "trained_parameters")}
    return {"problem": problem, "score": score, "low": low, "high": high, **kept}


def probe_metrics(folder: Path, tasks: tuple[str, ...], backbones: tuple[str, ...]) -> dict[tuple[str, str], Any]:
    """`metrics/probe/` of each task and backbone, whole: layers, learning curve, confusion."""
    return {
        (task, backbone): _read(folder / "metrics" / "probe" / f"{task}-{backbone}.json", "probe", f"{task}-{backbone}")
        for task in tasks
        for backbone in backbones
    }


Stages = dict[tuple[str, str], dict[str, CostRecord]]
"""Cost of each stage by task and backbone."""


def stage_costs(folder: Path, tasks: tuple[str, ...], backbones: tuple[str, ...]) -> Stages:
    """`data/cost/` of each task and backbone."""
    return {
        (task, backbone): {
            stage: _cost(folder, stage, f"{task}-{backbone}") for stage in ("cache", "probe", "finetune")
        }
        for task in tasks
        for backbone in backbones
    }


def _cost(folder: Path, stage: str, key: str) -> CostRecord:
    record = _read(folder / "data" / "cost" / f"{stage}-{key}.json", stage, key)
    methods = {name: MethodCost(**one) for name, one in record.pop("methods", {}).items()}
    return CostRecord(**record, methods=methods)


def _read(path: Path, stage: str, key: str) -> dict[str, Any]:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise PermafrostError(f"{path} is missing", mend=f"dvc repro {stage}@{key}") from error
