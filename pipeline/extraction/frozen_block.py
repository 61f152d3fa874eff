"""A transformer block for extraction only: prepared products, and outputs at the wanted positions alone.

The definition is `pipeline.backbones.transformer.Block`; tests hold the two equal. Nothing here can train.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from pipeline.backbones.transformer import Block
from pipeline.extraction.frozen_attention import Batch, FrozenAttention
from pipeline.extraction.products import gated, linear
from pipeline.extraction.sums import SumAndNorm, sum_and_norm

Stream = Float32[Tensor, "row token width"]
Ready = Float[Tensor, "row token width"]


class FrozenBlock:
    """One block whose products run in `dtype`; norms and the sums between blocks stay in float32.

    So the error against float32 is that of the products alone, and does not grow with every addition. What products
    read is written in their dtype beside the residual stream, while the sum and norm it comes from are still at hand;
    so a block prepares what the next one reads.
    """

    def __init__(self, block: Block, following: SumAndNorm | None, dtype: torch.dtype) -> None:
        """Prepare `block`; `following` is the norm that the next one begins with, None where it begins with none."""
        spec = block.spec
        self.prenorm, self.following = spec.prenorm, following
        self.attention = FrozenAttention(block.attention, dtype)
        self.norm1, self.norm2 = (sum_and_norm(norm, dtype, not spec.prenorm) for norm in (block.norm1, block.norm2))
        self.up = gated(block.up, dtype, spec.activation) if spec.gated else linear(block.up, dtype, spec.activation)
        self.down = linear(block.down, dtype)

    def __call__(
        self, stream: Stream, ready: Ready, batch: Batch, positions: Int64[Tensor, "batch kept"] | None
    ) -> tuple[Float32[Tensor, "#batch kept width"], Float[Tensor, "#batch kept width"] | None]:
        """The block's output at `positions` (all when None), and what the next block's first product reads of it.

        Args:
            stream: the block's input at every token, overwritten: a fresh tensor would cost a tenth of a product.
            ready: the same, normalised first in a prenorm network, in the products' dtype.
            batch: what the blocks share.
            positions: for each row the tokens whose output is wanted; other tokens serve as keys only. Exact.
        """
        mixed = self.attention(ready, batch, positions)
        kept = stream if positions is None else batch.take(stream, positions)
        if not self.prenorm:
            inner = self.norm1(kept, mixed)
            return kept, self.norm2(kept, self.down(self.up(inner)))
        added = self.down(self.up(self.norm2(kept, mixed)))
        if self.following is None:
            kept += added
            return kept, None
        return kept, self.following(kept, added)
