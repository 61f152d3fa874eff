"""The style that all pictures share, for print and the colour-blind; and learning curves, and time per stage."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipeline.comparison.join import Stages
from pipeline.problem import problem_in

# Okabe and Ito's palette: told apart with every common colour vision, and in grey by marker and line besides.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINES = ("-", "--", "-.", ":")
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
