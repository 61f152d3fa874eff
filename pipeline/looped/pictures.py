"""Pictures of the looped transformer: where each head looks, and how accurate the library is."""

from __future__ import annotations

from collections.abc import Sequence
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
    figure = Figure(figsize=(3.2 * across, 3.4 * down), layout="constrained")
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


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG without the version of the program that drew it, so that equal figures are equal bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, format="png", metadata={"Software": None})
