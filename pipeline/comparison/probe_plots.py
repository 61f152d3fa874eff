"""Pictures of the probes alone: layer by layer, against the number of training examples, and class against class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipeline.comparison.join import METHODS
from pipeline.comparison.plots import LINES, STYLE, colours_of, legend_below, panels
from pipeline.problem import problem_in

Probes = dict[tuple[str, str], dict[str, Any]]
"""`metrics/probe/` by task and backbone."""
Lines = dict[str, list[tuple[Any, dict[str, Any]]]]
"""Points of each line, x and what metrics say of it, by what tells a backbone's lines apart."""


def layer_sweep(probes: Probes) -> Figure | None:
    """The score on test against the cached layer, a panel for each task and a line for each readout.

    None where one layer in one readout was cached.
    """
    if all(len(one["layers"]) < 2 for one in probes.values()):
        return None

    def lines(one: dict[str, Any]) -> Lines:
        found: Lines = {}
        names = (name.partition(":") for name in one["layers"])
        for layer, _, readout in sorted(names, key=lambda name: float("inf") if name[0] == "final" else int(name[0])):
            state = f"{layer}:{readout}" if readout else layer
            found.setdefault(readout, []).append((layer, one["layers"][state][one["method"]]))
        return found

    return _lines(probes, lines, "layer", log=False)


def data_curves(probes: Probes) -> Figure | None:
    """The score on test against the number of training examples; None where there is no curve."""
    if all(len(one["learning_curve"]) < 2 for one in probes.values()):
        return None

    def lines(one: dict[str, Any]) -> Lines:
        return {"": [(point["examples"], point) for point in one["learning_curve"]]}

    return _lines(probes, lines, "training examples", log=True)


def _lines(probes: Probes, lines: Callable[[dict[str, Any]], Lines], label: str, log: bool) -> Figure:
    """A colour for each backbone; where it has one line alone, also a style of its own.

    Bars are 95 % intervals, a dotted line is the task's best floor.
    """
    tasks = list(dict.fromkeys(task for task, _ in probes))
    backbones = list(dict.fromkeys(backbone for _, backbone in probes))
    colours = colours_of(backbones)
    with mpl.rc_context(STYLE):
        figure, axes = panels(len(tasks))
        for place, task in zip(axes, tasks, strict=True):
            for number, backbone in enumerate(backbones):
                drawn = lines(probes[task, backbone])
                for turn, (name, points) in enumerate(drawn.items()):
                    style = LINES[(number if len(drawn) < 2 else turn) % len(LINES)]
                    title = f"{backbone}, {name}" if name else backbone
                    _line(place, points, color=colours[backbone], linestyle=style, label=title)
                place.set_ylabel(f"test {problem_in(probes[task, backbone]).label}")
            _floor(place, next(iter(probes[task, backbone] for backbone in backbones)))
            place.set(xlabel=label, title=task)
            if log:
                place.set_xscale("log")
            place.grid(axis="y", color="#dddddd", linewidth=0.6)
        named = {title: line for place in axes for line, title in zip(*place.get_legend_handles_labels(), strict=True)}
        legend_below(figure, list(named.values()), list(named))
    return figure


def _line(axes: Axes, points: list[tuple[Any, dict[str, Any]]], **look: Any) -> None:
    x, found = [x for x, _ in points], [one for _, one in points]
    scores = [one[problem_in(one).test] for one in found]
    y = np.array([np.nan if score is None else score for score in scores])
    axes.plot(x, y, marker="o", **look)
    ends = np.array([one.get("test_interval") or (np.nan, np.nan) for one in found])
    axes.vlines(x, ends[:, 0], ends[:, 1], color=look["color"], linewidth=1, alpha=0.5)


def _floor(axes: Axes, one: dict[str, Any]) -> None:
    floors = one.get("floors", {})
    if floors:
        name = max(floors, key=lambda name: floors[name])
        axes.axhline(floors[name], color="#555555", linestyle=":", linewidth=1)
        at = axes.get_yaxis_transform()
        axes.text(1, floors[name], name, transform=at, ha="right", va="bottom", fontsize=8, color="#555555")


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
            place.set_title(f"{task}, {backbone}\n{METHODS[one['method']]}, layer {one['layer']}", fontsize=10)
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
