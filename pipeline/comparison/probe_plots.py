"""Pictures of the probes alone: layer by layer, against the number of training examples, and class against class."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipeline.comparison.plots import LINES, STYLE, colours_of, panels
from pipeline.problem import problem_in

Probes = dict[tuple[str, str], dict[str, Any]]
"""`metrics/probe/` by task and backbone."""


def layer_sweep(probes: Probes) -> Figure | None:
    """The score on test against the cached layer, a panel for each task; None where one layer was cached."""
    if all(len(one["layers"]) < 2 for one in probes.values()):
        return None

    def points(one: dict[str, Any]) -> tuple[list[str], list[float | None]]:
        names = sorted(one["layers"], key=lambda name: float("inf") if name == "final" else int(name))
        return names, [one["layers"][name][one["method"]][problem_in(one).test] for name in names]

    return _lines(probes, points, "layer", log=False)


def data_curves(probes: Probes) -> Figure | None:
    """The score on test against the number of training examples; None where there is no curve."""
    if all(len(one["learning_curve"]) < 2 for one in probes.values()):
        return None

    def points(one: dict[str, Any]) -> tuple[list[int], list[float | None]]:
        curve = one["learning_curve"]
        return [point["examples"] for point in curve], [point[problem_in(one).test] for point in curve]

    return _lines(probes, points, "training examples", log=True)


def _lines(probes: Probes, points: Any, label: str, log: bool) -> Figure:
    tasks = list(dict.fromkeys(task for task, _ in probes))
    backbones = list(dict.fromkeys(backbone for _, backbone in probes))
    colours = colours_of(backbones)
    with mpl.rc_context(STYLE):
        figure, axes = panels(len(tasks))
        for place, task in zip(axes, tasks, strict=True):
            for number, backbone in enumerate(backbones):
                x, y = points(probes[task, backbone])
                y = [np.nan if value is None else value for value in y]
                style = LINES[number % len(LINES)]
                place.plot(x, y, color=colours[backbone], linestyle=style, marker="o", label=backbone)
                place.set_ylabel(f"test {problem_in(probes[task, backbone]).label}")
            place.set(xlabel=label, title=task)
            if log:
                place.set_xscale("log")
            place.grid(axis="y", color="#dddddd", linewidth=0.6)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    return figure


def confusion_matrices(probes: Probes) -> Figure | None:
    """A panel for each task of classes and each backbone: the share of each class's answers that went to each class."""
    known = {pair: one for pair, one in probes.items() if "confusion" in one}
    if not known:
        return None
    tasks = list(dict.fromkeys(task for task, _ in known))
    backbones = list(dict.fromkeys(backbone for _, backbone in known))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(4.2 * len(backbones), 3.9 * len(tasks)), layout="constrained")
        grid = figure.subplots(len(tasks), len(backbones), squeeze=False)
        image = None
        for (task, backbone), one in known.items():
            place = grid[tasks.index(task)][backbones.index(backbone)]
            image = _matrix(place, np.array(one["confusion"]))
            place.set_title(f"{task}, {backbone}")
        if image is not None:
            figure.colorbar(image, ax=grid, label="share of the true class's answers", shrink=0.6)
    return figure


def _matrix(axes: Axes, counts: np.ndarray) -> Any:
    shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    few = len(counts) <= 12
    if few:
        for (row, column), share in np.ndenumerate(shares):
            if share >= 0.005:
                colour = "white" if share > 0.5 else "#222222"
                size = 9 if len(counts) < 6 else 6.5
                axes.text(column, row, f"{share:.2f}", ha="center", va="center", fontsize=size, color=colour)
    ticks = range(len(counts)) if few else range(0, len(counts), len(counts) // 6)
    axes.set(xlabel="class given", ylabel="true class", xticks=ticks, yticks=ticks)
    return image
