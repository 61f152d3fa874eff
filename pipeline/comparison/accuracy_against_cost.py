"""The picture of what this project is about: each method's score on test against the seconds that it took.

A panel has one task and one backbone, so that the few methods in it can be named beside their markers. Probes on one
cache cost nearly the same, and often score nearly the same: their markers are hollow and of different shape, and their
names stand apart from each other at the end of a line. No marker is moved.
"""

from __future__ import annotations

import math
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from pipeline.comparison.join import METHODS, Method, Row
from pipeline.comparison.plots import COLOURS, STYLE

LOOKS: dict[Method, tuple[str, str, str]] = {
    "logistic": ("logistic", "o", COLOURS[0]),
    "ridge": ("ridge", "^", COLOURS[1]),
    "knn": ("neighbours", "D", COLOURS[2]),
    "sgd": ("Adam", "v", COLOURS[3]),
    "head2toe": ("all layers", "P", COLOURS[4]),
    "finetune": ("fine-tune", "s", COLOURS[6]),
}
"""A method's short name, marker and colour."""
GAP = 0.085
"""Least distance between two names, as a share of a panel's height."""
Box = tuple[float, float, float, float]
"""The ends of both axes: seconds, then scores."""


def accuracy_against_cost(rows: list[Row]) -> Figure:
    """A panel for each task and backbone: score on test with its interval against seconds, the best floor as a line.

    The panels of a task share both axes; each task's score has its own name on its own axis.
    """
    tasks, backbones = (
        [*dict.fromkeys(names)] for names in zip(*((row.task, row.backbone) for row in rows), strict=True)
    )
    with mpl.rc_context(STYLE):
        size = (4.4 * len(backbones), 0.6 + 3.5 * len(tasks))
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(len(tasks), len(backbones), squeeze=False, sharex="row", sharey="row")
        for task, line in zip(tasks, grid, strict=True):
            here = [row for row in rows if row.task == task]
            for backbone, axes in zip(backbones, line, strict=True):
                _panel(axes, [row for row in here if row.backbone == backbone], here)
                axes.set_title(_title(here[0], backbone), fontsize=10)
            line[0].set_ylabel(f"test {here[0].problem.label}")
        figure.legend(handles=_legend(rows), loc="outside lower center", ncols=3, frameon=False)
    return figure


def _title(row: Row, backbone: str) -> str:
    name, floor = row.best_floor
    return f"{row.task}, {backbone}\ndotted: best floor {row.problem.cell(floor)}, {name}"


def _legend(rows: list[Row]) -> list[Line2D]:
    methods: list[Method] = [*dict.fromkeys(row.method for row in rows)]
    return [Line2D([], [], linestyle="none", label=METHODS[name], **_marker(name)) for name in methods]


def _marker(method: Method) -> dict[str, Any]:
    _, marker, colour = LOOKS[method]
    return {"marker": marker, "color": colour, "markersize": 8, "mfc": "none", "mew": 1.5}


def _panel(axes: Axes, rows: list[Row], task: list[Row]) -> None:
    box = limits(task)
    axes.set(xscale="log", xlim=box[:2], ylim=box[2:], xlabel="seconds in all")
    axes.tick_params(labelleft=True, labelbottom=True)
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.axhline(task[0].best_floor[1], color="#555555", linestyle=":", linewidth=1.2)
    for row in rows:
        bar = [[max(0.0, row.score - row.low)], [max(0.0, row.high - row.score)]]
        axes.errorbar(row.seconds, row.score, yerr=bar, elinewidth=1.0, linestyle="none", **_marker(row.method))
    for row, (across, up, side) in zip(rows, name_places(rows, box), strict=True):
        name, _, colour = LOOKS[row.method]
        axes.annotate(
            f"{name} {row.score:.3f}",
            (row.seconds, row.score),
            xytext=(across, up),
            textcoords="axes fraction",
            ha=side,
            va="center",
            fontsize=8.5,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.8, "shrinkA": 1, "shrinkB": 5},
        )


def limits(rows: list[Row]) -> Box:
    """The ends of a task's axes: all markers, intervals and the floor, with room; at least a decade of seconds."""
    first, last = (math.log10(end) for end in (min(row.seconds for row in rows), max(row.seconds for row in rows)))
    wider = max(0.15 * (last - first), (1 - (last - first)) / 2)
    floor = rows[0].best_floor[1]
    low, high = min(floor, *(row.low for row in rows)), max(floor, *(row.high for row in rows))
    room = 0.08 * (high - low) or 0.1
    return 10 ** (first - wider), 10 ** (last + wider), low - room, high + room


def name_places(rows: list[Row], box: Box) -> list[tuple[float, float, str]]:
    """Where each row's name stands, as shares of the panel's width and height, and which of its ends faces the marker.

    Names stand in one column right of the markers of the left half, and in one left of those of the right half, in the
    order of their scores and no closer than `GAP`.
    """
    left, right, low, high = box
    across = [math.log(row.seconds / left) / math.log(right / left) for row in rows]
    up = spread_apart([(row.score - low) / (high - low) for row in rows], GAP)
    columns = (
        max((at for at in across if at <= 0.5), default=0.0) + 0.08,
        min((at for at in across if at > 0.5), default=1.0) - 0.08,
    )
    return [(columns[at > 0.5], y, "right" if at > 0.5 else "left") for at, y in zip(across, up, strict=True)]


def spread_apart(places: list[float], gap: float) -> list[float]:
    """The places moved as little as a sweep can, within 0 to 1 where they fit, until neighbours are `gap` apart."""
    order = sorted(range(len(places)), key=places.__getitem__)
    found, least = list(places), gap / 2
    for place in order:
        found[place] = max(found[place], least)
        least = found[place] + gap
    most = 1 - gap / 2
    for place in reversed(order):
        found[place] = min(found[place], most)
        most = found[place] - gap
    return found
