"""Which positions' hidden states are kept, or how they become one vector; several readouts come from one pass."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from pipeline.errors import PermafrostError

ReadoutName = Literal["task", "last", "mean", "max", "all"]


def state_names(layers: tuple[str, ...], readouts: tuple[ReadoutName, ...]) -> tuple[str, ...]:
    """What is kept, by name: the layer, with its readout behind a colon where there are several."""
    if len(readouts) == 1:
        return layers
    return tuple(f"{layer}:{readout}" for layer in layers for readout in readouts)


def kept_together(readouts: tuple[ReadoutName, ...], answers: int, tokens: int) -> int:
    """How many vectors an example keeps of each readout.

    Raises:
        PermafrostError: the readouts keep different numbers of vectors.
    """
    kept = {name: kept_vectors(name, answers, tokens) for name in readouts}
    if len(set(kept.values())) > 1:
        counts = ", ".join(f"{name} {count}" for name, count in kept.items())
        raise PermafrostError(
            f"cache.readout: these keep different numbers of vectors of an example ({counts})",
            mend="keep them in runs of their own",
        )
    return kept[readouts[0]]


def kept_vectors(name: ReadoutName, answers: int, tokens: int) -> int:
    """How many vectors an example keeps: `answers` is the task's own number of readout tokens."""
    return {"task": answers, "all": tokens}.get(name, 1)


def positions(
    name: ReadoutName, answers: int, lengths: Int64[Tensor, " batch"], tokens: int
) -> Int64[Tensor, "batch kept"] | None:
    """The positions that are kept; None where the readout looks at all of them.

    `task`: the last tokens, as many as the task answers at; `last`: the last real one.
    Padding is on the right; an example shorter than its answer span reads its first token instead.
    """
    if name in ("mean", "max", "all"):
        return None
    count = answers if name == "task" else 1
    back = torch.arange(count - 1, -1, -1, device=lengths.device)
    return (lengths[:, None] - 1 - back).clamp(min=0)


def pool(
    name: ReadoutName, hidden: Float[Tensor, "batch token width"], mask: Bool[Tensor, "batch token"]
) -> Float[Tensor, "batch kept width"]:
    """All positions (`all`, zeros at padding) or one vector of them, in float32: padding counts as nothing."""
    hidden = hidden.float()
    real = mask[:, :, None]
    if name == "max":
        return torch.where(real, hidden, -torch.inf).amax(dim=1, keepdim=True)
    kept = torch.where(real, hidden, 0.0)
    if name == "mean":
        return kept.sum(dim=1, keepdim=True) / mask.sum(dim=1)[:, None, None].clamp(min=1)
    return kept
