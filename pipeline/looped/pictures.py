"""Pictures of the looped transformer: where each head looks, and how accurate the library is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from pipeline.looped.model import LoopedTransformer

LEAST = 1e-17
"""Where an error of 0 is drawn on a logarithmic axis."""


def draw_attention(network: LoopedTransformer, x: Float[Tensor, "batch column width"], title: str, path: Path) -> None:
    """Write a PNG with one square a head, in the loop that starts from `x`: each row is a column that looks."""
    with torch.inference_mode():
        heads = [
            (f"layer {layer}, head {number}", weights.double().cpu())
            for layer, matrices in network.attentions(x)
            for number, weights in enumerate(matrices, start=1)
        ]
    across = min(4, len(heads))
    down = -(-len(heads) // across)
    figure = Figure(figsize=(3.2 * across, 0.6 + 3.4 * down), layout="constrained")
    figure.suptitle(title)
    for place, (name, weights) in enumerate(heads, start=1):
        axes = figure.add_subplot(down, across, place)
        axes.imshow(weights.numpy(), cmap="magma", vmin=0.0, vmax=1.0, interpolation="nearest")
        axes.set_title(name, fontsize=9)
        axes.set_xlabel("key column", fontsize=8)
        axes.set_ylabel("query column", fontsize=8)
    save(figure, path)


def draw_errors(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write a PNG with the largest error of each program, one mark a dtype."""
    names = list(dict.fromkeys(row["name"] for row in rows))
    figure = Figure(figsize=(8, 1.2 + 0.28 * len(names)), layout="constrained")
    axes = figure.add_subplot()
    for dtype, marker in (("float32", "o"), ("float64", "s")):
        chosen = [row for row in rows if row["dtype"] == dtype]
        errors = [max(row["largest_error"], LEAST) for row in chosen]
        axes.scatter(errors, [names.index(row["name"]) for row in chosen], marker=marker, label=dtype)
    axes.set_xscale("log")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel(f"largest error against the known answer (exact drawn at {LEAST:g})")
    axes.legend()
    save(figure, path)


def draw_layers(curves: Mapping[str, Sequence[float]], blocks: Sequence[str], path: Path) -> None:
    """Write a PNG of what a probe reads at each layer: one panel a curve, shaded loop by loop.

    Args:
        curves: accuracies by name, from layer 0, the input, to the last block of the last loop.
        blocks: the names of a loop's blocks.
        path: the file.
    """
    layers = max(map(len, curves.values()))
    names = ["input", *(blocks[index % len(blocks)] for index in range(layers - 1))]
    figure = Figure(figsize=(1.5 + 0.45 * layers, 1.2 + 1.5 * len(curves)), layout="constrained")
    panels = figure.subplots(len(curves), squeeze=False)[:, 0]
    for axes, (name, accuracies) in zip(panels, curves.items(), strict=True):
        for first in range(1, layers, 2 * len(blocks)):
            axes.axvspan(first - 0.5, first + len(blocks) - 0.5, color="#eef2f7", linewidth=0)
        axes.plot(range(len(accuracies)), accuracies, marker="o", color="#1f5a99")
        axes.set_title(name, fontsize=9, loc="left")
        axes.set(ylabel="test accuracy", ylim=(0.0, 1.05), xticks=range(layers), xticklabels=[])
        axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    panels[-1].set_xticklabels(names, rotation=60, ha="right", fontsize=8)
    save(figure, path)


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG without the version of the program that drew it, so that equal figures are equal bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, format="png", metadata={"Software": None})
