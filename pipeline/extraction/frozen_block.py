"""A transformer block for extraction only: prepared products, and outputs at the wanted positions alone.

The definition is `pipeline.backbones.transformer.Block`; tests hold the two equal. Nothing here can train.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from pipeline.backbones.transformer import Block
from pipeline.extraction.frozen_attention import Batch, FrozenAttention
from pipeline.extraction.products import linear, product


class FrozenBlock:
    """One block whose products run in `dtype`; norms and the sums between blocks stay in float32.

    So the error against float32 is that of the products alone, and does not grow with every addition.
    """

    def __init__(self, block: Block, dtype: torch.dtype) -> None:
        spec = block.spec
        self.prenorm = spec.prenorm
        self.norm1, self.norm2 = block.norm1, block.norm2
        self.attention = FrozenAttention(block.attention, dtype)
        weight, bias = block.up.weight, block.up.bias
        gate, rest = (
            (slice(None, spec.inner_width), slice(spec.inner_width, None)) if spec.gated else (slice(None), None)
        )
        self.up = product(weight[gate], None if bias is None else bias[gate], dtype, spec.activation)
        self.twin = None if rest is None else product(weight[rest], None if bias is None else bias[rest], dtype)
        self.down = linear(block.down, dtype)

    def __call__(
        self,
        x: Float[Tensor, "row token width"],
        batch: Batch,
        positions: Int64[Tensor, "batch kept"] | None,
    ) -> Float[Tensor, "#batch kept width"]:
        """The block's output at `positions` (all when None).

        Args:
            x: its input at every token, which is overwritten: a fresh tensor would cost a tenth of a product.
            batch: what the blocks share.
            positions: for each row the tokens whose output is wanted; other tokens serve as keys only. Exact.
        """
        mixed = self.attention(self.norm1(x) if self.prenorm else x, batch, positions)
        kept = x if positions is None else batch.take(x, positions)
        kept += mixed
        if self.prenorm:
            kept += self._feed_forward(self.norm2(kept))
            return kept
        kept = self.norm1(kept)
        kept += self._feed_forward(kept)
        return self.norm2(kept)

    def _feed_forward(self, x: Tensor) -> Tensor:
        inner = self.up(x)
        return self.down(inner if self.twin is None else inner * self.twin(x))
