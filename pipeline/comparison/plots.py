"""The pictures: accuracy against cost, and learning curves. Drawn for print and for the colour-blind."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from pipeline.comparison.join import Row, Stages

# Okabe and Ito's palette: told apart with every common colour vision, and in grey by marker and line besides.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = {"logistic": "o", "ridge": "^", "knn": "D", "sgd": "v", "head2toe": "P", "finetune": "s"}
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
    colours = colours_of([row.backbone for row in rows])
    with mpl.rc_context(STYLE):
        figure, places = panels(len(tasks))
        for axes, task in zip(places, tasks, strict=True):
            _points(axes, [row for row in rows if row.task == task], colours)
        figure.legend(handles=_legend(rows, colours), loc="outside lower center", ncols=3, frameon=False)
    return figure


def _legend(rows: list[Row], colours: dict[str, str]) -> list[Line2D]:
    """Colours say the backbone, markers the method."""
    methods = {row.method: row for row in rows}.values()
    backbones = [Line2D([], [], color=colour, linewidth=4, label=name) for name, colour in colours.items()]
    return backbones + [
        Line2D([], [], color="#555555", linestyle="none", label=row.label, **_marker(row, "#555555")) for row in methods
    ]


def _marker(row: Row, colour: str) -> dict[str, Any]:
    return {"marker": MARKERS[row.method], "markersize": 7, "mfc": colour if row.method == "finetune" else "white"}


def _points(axes: Axes, rows: list[Row], colours: dict[str, str]) -> None:
    for row in rows:
        axes.errorbar(
            row.seconds,
            row.accuracy,
            yerr=[[max(0.0, row.accuracy - row.low)], [max(0.0, row.high - row.accuracy)]],
            color=colours[row.backbone],
            capsize=3,
            linestyle="none",
            **_marker(row, colours[row.backbone]),
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
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)


def learning_curves(folder: Path, tasks: tuple[str, ...], backbones: tuple[str, ...]) -> Figure:
    """A panel for each task: accuracy on validation against the fine-tune's steps."""
    colours = colours_of(list(backbones))
    with mpl.rc_context(STYLE):
        figure, places = panels(len(tasks))
        for axes, task in zip(places, tasks, strict=True):
            for line, backbone in enumerate(backbones):
                with (folder / f"{task}-{backbone}.csv").open(encoding="utf-8") as file:
                    points = list(csv.DictReader(file))
                steps = [int(point["step"]) for point in points]
                scores = [float(point["validation_accuracy"]) for point in points]
                style = LINES[line % len(LINES)]
                axes.plot(steps, scores, color=colours[backbone], linestyle=style, marker=".", label=backbone)
            axes.set(xlabel="step of the fine-tune", ylabel="validation accuracy", title=task)
            axes.grid(axis="y", color="#dddddd", linewidth=0.6)
        figure.legend(*places[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    return figure


def time_per_stage(costs: Stages) -> Figure:
    """Seconds of each stage, a group of bars for each task and backbone, on a logarithmic axis."""
    stages = list(next(iter(costs.values())))
    hatches = ("", "//", "..")
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.5, 1.2 + 0.75 * len(costs)), layout="constrained")
        axes = figure.subplots()
        for number, stage in enumerate(stages):
            values = [one[stage].seconds for one in costs.values()]
            at = [place + (number - 1) * 0.26 for place in range(len(values))]
            bars = axes.barh(
                at, values, 0.24, color=COLOURS[number], hatch=hatches[number], edgecolor="white", label=stage
            )
            axes.bar_label(bars, fmt=lambda x: f"{x:.0f} s" if x >= 10 else f"{x:.2g} s", padding=3, fontsize=8)
        axes.set(
            xscale="log", xlabel="seconds", yticks=range(len(costs)), yticklabels=[", ".join(pair) for pair in costs]
        )
        axes.margins(x=0.15)
        axes.invert_yaxis()
        figure.legend(loc="outside lower center", ncols=3, frameon=False)
    return figure


def panels(count: int) -> tuple[Figure, list[Axes]]:
    """A figure of panels side by side."""
    figure = Figure(figsize=(4.6 * count, 4.4), layout="constrained")
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


def colours_of(names: list[str]) -> dict[str, str]:
    """A colour for each name, the same in every picture."""
    return {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(dict.fromkeys(names))}
