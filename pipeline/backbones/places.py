"""How a token learns where it stands: by a table added to the inputs, a rotation, or a bias by distance.

The table is GPT-2's and BERT's; the rotation RoFormer's (arXiv 2104.09864, equation 34) as Llama has it, the two halves
of a head paired; the bias T5's (arXiv 1910.10683, section 2.1: by head and bucket of distances, shared by all blocks).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor


@dataclass(frozen=True)
class Table:
    """A learned vector for each position, added to the input; `zeros`: they are zero until they are trained."""

    zeros: bool = False


@dataclass(frozen=True)
class Stretch:
    """Llama 3.1's change of the angles for inputs longer than it was trained on: slow rotations are slowed by `factor`,
    fast ones stay, those between are blended.
    """

    factor: float
    slow: float
    fast: float
    trained_on: int


@dataclass(frozen=True)
class Rotary:
    """Queries and keys are turned by angles that grow with the position; `base` sets the slowest."""

    base: float
    stretch: Stretch | None = None


@dataclass(frozen=True)
class Relative:
    """A bias by signed distance; distances from `distance` on share a bucket."""

    buckets: int
    distance: int


Places = Table | Rotary | Relative


@dataclass(frozen=True)
class Geometry:
    """What the blocks of one forward pass share: the rotation of each token, or the bias of each pair."""

    rotation: Float[Tensor, "2 token half"] | None = None
    bias: Float[Tensor, "head token token"] | None = None


def rotation(places: Rotary, head_width: int, tokens: int, device: torch.device) -> Float[Tensor, "2 token half"]:
    """Cosines and sines of every token's angles, in float32."""
    exponent = torch.arange(0, head_width, 2, dtype=torch.int64, device=device).float() / head_width
    frequency = 1.0 / places.base**exponent
    if places.stretch is not None:
        frequency = _stretched(frequency, places.stretch)
    angles = torch.arange(tokens, device=device)[:, None] * frequency
    return torch.stack([angles.cos(), angles.sin()])


def _stretched(frequency: Float[Tensor, " half"], stretch: Stretch) -> Float[Tensor, " half"]:
    turns = stretch.trained_on * frequency / (2 * math.pi)
    kept = ((turns - stretch.slow) / (stretch.fast - stretch.slow)).clamp(0.0, 1.0)
    return kept * frequency + (1 - kept) * frequency / stretch.factor


def rotate(
    x: Float[Tensor, "batch head token width"], turn: Float[Tensor, "2 #batch #head token half"]
) -> Float[Tensor, "batch head token width"]:
    """Turn each pair (i, i + width / 2) of a head by its angle, in float32; the result is in the dtype of `x`."""
    first, second = x.float().chunk(2, dim=-1)
    cos, sin = turn
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)


def relative_buckets(places: Relative, tokens: int, device: torch.device) -> Int64[Tensor, "token token"]:
    """The bucket of each (query, key): one half for keys behind; near distances apart, far ones by logarithm."""
    place = torch.arange(tokens, device=device)
    away = place[None, :] - place[:, None]
    half = places.buckets // 2
    near = half // 2
    distance = away.abs()
    growth = (distance.clamp(min=1).float() / near).log() / math.log(places.distance / near)
    far = (near + (growth * (half - near)).long()).clamp(max=half - 1)
    return (away > 0) * half + torch.where(distance < near, distance, far)
