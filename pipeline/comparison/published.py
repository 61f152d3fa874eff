"""What others published, read from published.yaml, and set beside what was measured here, never in one column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

from ruamel.yaml import YAML

from pipeline.comparison.join import Method, Row
from pipeline.comparison.statistics import difference_from

Weights = Literal["pretrained", "random"]
WEIGHTS: dict[str, Weights] = {"package": "pretrained", "path": "pretrained", "hub": "pretrained", "random": "random"}
"""By the source of a backbone's entry; an LSTM and weights set by hand are like nothing that was published."""
KINDS: dict[Method, str] = {"logistic": "probe", "ridge": "probe", "sgd": "probe", "finetune": "finetune"}
"""What a method is among published ones: neighbours and features of all layers are no output layer on cached ones."""


@dataclass(frozen=True)
class Published:
    """One published test accuracy, a share.

    `ours` is the kind of our methods that it can be set beside, on a backbone with such `weights`.
    """

    task: str
    arm: str
    accuracy: float
    spread: float | None
    paper: str
    place: str
    reliability: str
    ours: str | None
    weights: Weights | None


def published() -> list[Published]:
    """Every value of published.yaml, task by task."""
    text = files("pipeline.comparison").joinpath("published.yaml").read_text(encoding="utf-8")
    document = YAML(typ="safe").load(text)
    found = [
        Published(
            task,
            entry["arm"],
            percent / 100,
            entry["spread"][task] / 100 if "spread" in entry else None,
            ours=entry["ours"],
            weights=entry.get("weights"),
            **document["sources"][entry["source"]],
        )
        for entry in document["values"]
        for task, percent in entry["accuracy"].items()
    ]
    order = list(dict.fromkeys(one.task for one in found))
    return sorted(found, key=lambda one: order.index(one.task))


COLUMNS = ("task", "published arm", "published", "source", "reliability", "measured here", "measured − published")


def published_cells(rows: list[Row], values: list[Published], sources: Mapping[str, str]) -> list[list[str]]:
    """A line for each published value of a task that was run, and for each measured row that can stand beside it.

    Beside it stands only its like, by method and by the weights of its backbone, whose entry names a source.
    """
    lines = []
    tasks = {row.task for row in rows}
    for one in (one for one in values if one.task in tasks):
        spread = "" if one.spread is None else f" ± {one.spread:.3f}"
        left = [one.task, one.arm, f"{one.accuracy:.3f}{spread}", f"{one.paper}, {one.place}", one.reliability]
        beside = [row for row in rows if row.task == one.task and one.ours is not None and alike(one, row, sources)]
        for row in beside:
            low, middle, high = difference_from(one.accuracy, row)
            right = f"{row.backbone}, {row.label}: {row.score:.3f}"
            lines.append([*left, right, f"{middle:+.3f} [{low:+.3f}, {high:+.3f}]"])
        if not beside:
            lines.append([*left, "–", "–"])
    return lines


def alike(one: Published, row: Row, sources: Mapping[str, str]) -> bool:
    """Whether the same was done: a linear layer on one place of the network or the fine-tune, on such weights."""
    return KINDS.get(row.method) == one.ours and WEIGHTS.get(sources.get(row.backbone, "")) == one.weights
