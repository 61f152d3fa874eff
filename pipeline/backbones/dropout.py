"""Dropout that draws its masks from 16-bit integers: on a CPU four times as fast as one Bernoulli draw an element."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

LEVELS = 2**16


def dropout(x: Float[Tensor, "*shape"], probability: float) -> Float[Tensor, "*shape"]:
    """Zero each element with `probability`, rounded to 1/65536, and scale the others so that the mean is kept.

    Masks come from torch's global generator. On CUDA this is torch's own dropout, whose kernel draws and masks at once.
    """
    if probability == 0:
        return x
    if x.is_cuda:
        return F.dropout(x, probability, training=True)
    dropped = round(probability * LEVELS)
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    levels = words.view(torch.int16)[: x.numel()].view(x.shape)
    kept = levels >= dropped - LEVELS // 2
    return x * (kept * torch.tensor(LEVELS / (LEVELS - dropped), dtype=x.dtype))


class Dropout(nn.Module):
    """`dropout` in training mode, nothing in eval mode."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Drop in training mode only."""
        return dropout(x, self.probability) if self.training else x
