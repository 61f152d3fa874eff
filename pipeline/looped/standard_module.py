"""The looped transformer in PyTorch's own layers: proof that it is a standard one.

Each block becomes an nn.MultiheadAttention and two nn.Linear. nn.TransformerEncoderLayer would not do, since it
always has a LayerNorm.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.looped.model import Block, LoopedTransformer


class StandardBlock(nn.Module):
    """One block on a state whose width is padded to heads * head_dim, as nn.MultiheadAttention wants it."""

    def __init__(self, block: Block, width: int) -> None:
        super().__init__()
        self.attention = _attention(block, width) if block.heads else None
        self.linear1, self.linear2 = (nn.Linear(*shape, dtype=block.w1.dtype) for shape in _shapes(block, width))
        with torch.no_grad():
            for parameter in (self.linear1.weight, self.linear2.weight, self.linear2.bias):
                parameter.zero_()
            self.linear1.weight[:, : block.w1.shape[1]] = block.w1
            self.linear1.bias.copy_(block.b1)
            self.linear2.weight[: block.w2.shape[0]] = block.w2

    def forward(self, x: Float[Tensor, "batch column padded"]) -> Float[Tensor, "batch column padded"]:
        """x += attention(x); x += linear2(relu(linear1(x)))."""
        if self.attention is not None:
            x = x + self.attention(x, x, x, need_weights=False)[0]
        return x + self.linear2(torch.relu(self.linear1(x)))


class StandardTransformer(nn.Module):
    """The same function as a LoopedTransformer, on states of the same width."""

    def __init__(self, network: LoopedTransformer) -> None:
        super().__init__()
        width = network.layers[0].w1.shape[1]
        self.blocks = nn.ModuleList(StandardBlock(block, _padded(block, width)) for block in network.layers)
        self.requires_grad_(False).eval()

    def forward(self, x: Float[Tensor, "batch column width"]) -> Float[Tensor, "batch column width"]:
        """Execute one instruction of every program in the batch."""
        width = x.shape[-1]
        for block in self.blocks:
            padded = block.linear1.in_features  # type: ignore[union-attr]
            x = block(F.pad(x, (0, padded - width)))[..., :width]  # type: ignore[operator]
        return x


def _shapes(block: Block, width: int) -> tuple[tuple[int, int], tuple[int, int]]:
    hidden = block.w1.shape[0]
    return (width, hidden), (hidden, width)


def _padded(block: Block, width: int) -> int:
    """The smallest multiple of the heads that holds the state and, head by head, its scores and values."""
    if not block.heads:
        return width
    return block.heads * max(math.ceil(width / block.heads), block.wq.shape[1], block.wv.shape[1])


def _attention(block: Block, width: int) -> nn.MultiheadAttention:
    """Score axes become query and key features of a head, value axes its value features.

    nn.MultiheadAttention divides scores by sqrt(head_dim), so the queries are multiplied by it.
    """
    module = nn.MultiheadAttention(width, block.heads, bias=False, batch_first=True, dtype=block.wq.dtype)
    size = width // block.heads
    used, score, rank = block.wq.shape[2], block.wq.shape[1], block.wv.shape[1]
    with torch.no_grad():
        packed = module.in_proj_weight.zero_().view(3, block.heads, size, width)
        packed[0, :, :score, :used] = block.wq * math.sqrt(size)
        packed[1, :, :score, :used] = block.wk
        packed[2, :, :rank, :used] = block.wv
        output = module.out_proj.weight.zero_().view(width, block.heads, size)
        output[:used, :, :rank] = block.wo.transpose(0, 1)
    return module
