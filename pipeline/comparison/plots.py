"""The style that all pictures share, for print and the colour-blind; and learning curves, and time per stage."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipeline.comparison.join import Stages
from pipeline.problem import problem_in

# Okabe and Ito's palette: told apart with every common colour vision, and in grey by marker and line besides.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINES = ("-", "--", "-.", ":")
ACROSS = 3
"""Panels in a row: more would be too small to read on a page."""
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "permafrost",
}


def learning_curves(folder: Path, tasks: tuple[str, ...], backbones: tuple[str, ...]) -> Figure:
    """A panel for each task: its score on validation against the fine-tune's steps."""
    colours = colours_of(list(backbones))
    with mpl.rc_context(STYLE):
        figure, places = panels(len(tasks))
        for axes, task in zip(places, tasks, strict=True):
            for line, backbone in enumerate(backbones):
                with (folder / f"{task}-{backbone}.csv").open(encoding="utf-8") as file:
                    points = list(csv.DictReader(file))
                steps = [int(point["step"]) for point in points]
                problem = problem_in(points[0])
                scores = [float(point[problem.validation] or "nan") for point in points]
                style = LINES[line % len(LINES)]
                axes.plot(steps, scores, color=colours[backbone], linestyle=style, marker=".", label=backbone)
                axes.set_ylabel(f"validation {problem.label}")
            axes.set(xlabel="step of the fine-tune", title=task)
            axes.grid(axis="y", color="#dddddd", linewidth=0.6)
        legend_below(figure, *places[0].get_legend_handles_labels())
    return figure


def time_per_stage(costs: Stages) -> Figure:
    """Seconds of each stage for each task and backbone: dots, since a log axis gives a bar no meaningful length."""
    stages = list(next(iter(costs.values())))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.5, 1.2 + 0.75 * len(costs)), layout="constrained")
        axes = figure.subplots()
        for number, stage in enumerate(stages):
            values = [one[stage].seconds for one in costs.values()]
            at = [place + (number - 1) * 0.24 for place in range(len(values))]
            axes.plot(values, at, "os^"[number], color=COLOURS[number], markersize=7, label=stage)
            for seconds, height in zip(values, at, strict=True):
                said = f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"
                axes.annotate(said, (seconds, height), (8, 0), textcoords="offset points", va="center", fontsize=8)
        axes.set(
            xscale="log", xlabel="seconds", yticks=range(len(costs)), yticklabels=[", ".join(pair) for pair in costs]
        )
        axes.margins(x=0.15, y=0.1)
        axes.grid(axis="x", color="#dddddd", linewidth=0.6)
        axes.invert_yaxis()
        legend_below(figure, *axes.get_legend_handles_labels())
    return figure


def panels(count: int) -> tuple[Figure, list[Axes]]:
    """A figure of panels, three in a row."""
    columns, lines = min(count, ACROSS), -(-count // ACROSS)
    figure = Figure(figsize=(4.6 * columns, 4.4 * lines), layout="constrained")
    places = list(figure.subplots(lines, columns, squeeze=False).flat)
    for unused in places[count:]:
        unused.remove()
    return figure, places[:count]


def legend_below(figure: Figure, handles: Sequence[Artist], labels: Sequence[str]) -> None:
    """A legend under all panels, in as many columns as the figure is wide."""
    widest = 0.6 + 0.09 * max(map(len, labels), default=0)
    columns = max(1, int(figure.get_figwidth() / widest))
    figure.legend(handles, labels, loc="outside lower center", ncols=min(columns, 4), frameon=False)


def colours_of(names: list[str]) -> dict[str, str]:
    """A colour for each name, the same in every picture."""
    return {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(dict.fromkeys(names))}
