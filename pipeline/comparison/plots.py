"""The pictures: accuracy against cost, and learning curves. Drawn for print and for the colour-blind."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipeline.comparison.join import Row
from pipeline.comparison.table import METHODS

# Okabe and Ito's palette: told apart with every common colour vision, and in grey by marker and line besides.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = {"probe": "o", "finetune": "s"}
LINES = ("-", "--", "-.", ":")
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "permafrost",
}


def accuracy_against_cost(rows: list[Row]) -> Figure:
    """A panel for each task: test accuracy with its interval against seconds, and the best floor as a line."""
    tasks = list(dict.fromkeys(row.task for row in rows))
    colours = _colours([row.backbone for row in rows])
    with mpl.rc_context(STYLE):
        figure, panels = _panels(len(tasks))
        for axes, task in zip(panels, tasks, strict=True):
            _points(axes, [row for row in rows if row.task == task], colours)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    return figure


def _points(axes: Axes, rows: list[Row], colours: dict[str, str]) -> None:
    for row in rows:
        axes.errorbar(
            row.seconds,
            row.accuracy,
            yerr=[[max(0.0, row.accuracy - row.low)], [max(0.0, row.high - row.accuracy)]],
            marker=MARKERS[row.method],
            color=colours[row.backbone],
            mfc="white" if row.method == "probe" else colours[row.backbone],
            markersize=8,
            capsize=3,
            linestyle="none",
            label=f"{row.backbone}, {METHODS[row.method]}",
        )
    name, floor = rows[0].best_floor
    axes.axhline(floor, color="#555555", linestyle=":", linewidth=1.2)
    axes.annotate(
        f"floor: {name}",
        (0.02, floor),
        xycoords=("axes fraction", "data"),
        xytext=(0, 3),
        textcoords="offset points",
        fontsize=8,
        color="#555555",
    )
    axes.set(xscale="log", xlabel="seconds in all", ylabel="test accuracy", title=rows[0].task)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)


def learning_curves(folder: Path, tasks: tuple[str, ...], backbones: tuple[str, ...]) -> Figure:
    """A panel for each task: accuracy on validation against the fine-tune's steps."""
    colours = _colours(list(backbones))
    with mpl.rc_context(STYLE):
        figure, panels = _panels(len(tasks))
        for axes, task in zip(panels, tasks, strict=True):
            for line, backbone in enumerate(backbones):
                with (folder / f"{task}-{backbone}.csv").open(encoding="utf-8") as file:
                    points = list(csv.DictReader(file))
                steps = [int(point["step"]) for point in points]
                scores = [float(point["validation_accuracy"]) for point in points]
                style = LINES[line % len(LINES)]
                axes.plot(steps, scores, color=colours[backbone], linestyle=style, marker=".", label=backbone)
            axes.set(xlabel="step of the fine-tune", ylabel="validation accuracy", title=task)
            axes.grid(axis="y", color="#dddddd", linewidth=0.6)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    return figure


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(4.6 * count, 4.0), layout="constrained")
    panels = figure.subplots(1, count, squeeze=False)[0]
    return figure, list(panels)


def _colours(names: list[str]) -> dict[str, str]:
    return {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(dict.fromkeys(names))}
