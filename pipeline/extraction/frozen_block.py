"""A transformer block for extraction only: prepared products, and outputs at the wanted positions alone.

The definition is `pipeline.backbones.transformer.Block`; tests hold the two equal. Nothing here can train.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from pipeline.backbones.transformer import Block
from pipeline.extraction.products import linear, product


def take(
    x: Float[Tensor, "batch token width"], positions: Int64[Tensor, "batch kept"]
) -> Float[Tensor, "batch kept width"]:
    """The vectors at each row's own positions."""
    return x.gather(1, positions[:, :, None].expand(-1, -1, x.shape[-1]))


Frozen = Callable[[Tensor, Tensor | None, Tensor | None], Tensor]
"""A layer's output from its input, which tokens are real, and which positions are wanted."""


def frozen(block: nn.Module, dtype: torch.dtype) -> Frozen:
    """A layer of any backbone for extraction; an LSTM's runs as it is, in float32."""
    if isinstance(block, Block):
        return FrozenBlock(block, dtype)
    return lambda x, mask, positions: block(x) if positions is None else take(block(x), positions)


class FrozenBlock:
    """One block whose products run in `dtype`; norms and the sums between blocks stay in float32.

    So the error against float32 is that of the products alone, and does not grow with every addition.
    """

    def __init__(self, block: Block, dtype: torch.dtype) -> None:
        attention = block.attention
        width = attention.out.weight.shape[1]
        weight, bias = attention.qkv.weight, attention.qkv.bias
        self.heads, self.causal, self.prenorm = attention.heads, attention.causal, block.prenorm
        self.norm1, self.norm2 = block.norm1, block.norm2
        self.qkv = product(weight, bias, dtype)
        self.q = product(weight[:width], bias[:width], dtype)
        self.kv = product(weight[width:], bias[width:], dtype)
        self.out = linear(attention.out, dtype)
        self.up = linear(block.up, dtype, block.activation)
        self.down = linear(block.down, dtype)

    def __call__(
        self,
        x: Float[Tensor, "batch token width"],
        mask: Bool[Tensor, "batch token"] | None,
        positions: Int64[Tensor, "batch kept"] | None = None,
    ) -> Float[Tensor, "batch kept width"]:
        """The block's output at `positions` (all when None).

        Args:
            x: its input at every token.
            mask: which tokens are real; None when all are.
            positions: for each row the tokens whose output is wanted; other tokens serve as keys only. Exact.
        """
        normed = self.norm1(x) if self.prenorm else x
        mixed = self.out(self._attend(normed, mask, positions))
        kept = x if positions is None else take(x, positions)
        if self.prenorm:
            kept = kept + mixed
            return kept + self.down(self.up(self.norm2(kept)))
        kept = self.norm1(kept + mixed)
        return self.norm2(kept + self.down(self.up(kept)))

    def _attend(self, x: Tensor, mask: Tensor | None, positions: Tensor | None) -> Tensor:
        width = x.shape[-1]
        if positions is None:
            q, k, v = self.qkv(x).split(width, dim=-1)
        else:
            q = self.q(take(x, positions))
            k, v = self.kv(x).split(width, dim=-1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (q, k, v))
        allowed = self._allowed(x, mask, positions)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, is_causal=self.causal and allowed is None)
        return mixed.transpose(1, 2).flatten(-2)

    def _allowed(self, x: Tensor, mask: Tensor | None, positions: Tensor | None) -> Tensor | None:
        """Which keys each query may see, `(batch, 1, query, key)`; None when a plain (causal) kernel says the same.

        Padding is on the right, so a causal network's real tokens never look at it.
        """
        if not self.causal:
            return None if mask is None else mask[:, None, None, :]
        if positions is None:
            return None
        return (torch.arange(x.shape[1], device=x.device) <= positions[:, :, None])[:, None]
