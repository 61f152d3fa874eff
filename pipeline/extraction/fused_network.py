"""The fast families on a GPU: norm and residual sum are one kernel, and a block prepares what the next one reads.

The definition is `pipeline.backbones.transformer.Block`; tests hold the two equal. The residual stream is float32 and
written in place; what products read is written beside it in their dtype, by the kernel that has it in registers.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from pipeline.backbones.transformer import Block, Transformer
from pipeline.extraction.frozen_attention import Batch, FrozenAttention
from pipeline.extraction.fused import FusedNorm, activate_gated
from pipeline.extraction.network import FastNetwork, Hidden
from pipeline.extraction.products import linear

Stream = Float32[Tensor, "row token width"]
Ready = Float[Tensor, "row token width"]


class FusedBlock:
    """One block. `following` is the norm that the next block begins with; None where nothing is normalised next."""

    def __init__(self, block: Block, following: FusedNorm | None, dtype: torch.dtype) -> None:
        self.spec, self.following = block.spec, following
        self.attention = FrozenAttention(block.attention, dtype)
        self.norm1, self.norm2 = (
            FusedNorm(norm, dtype, postnorm=not block.spec.prenorm) for norm in (block.norm1, block.norm2)
        )
        # Both halves of a gated feed-forward are one product; the kernel behind it reads each of its rows once.
        self.up = linear(block.up, dtype, None if block.spec.gated else block.spec.activation)
        self.down = linear(block.down, dtype)

    def __call__(
        self, stream: Stream, ready: Ready, batch: Batch, positions: Int64[Tensor, "batch kept"] | None
    ) -> tuple[Float32[Tensor, "#batch kept width"], Float[Tensor, "#batch kept width"] | None]:
        """The block's output at `positions` (all when None), and what the next block's first product reads of it.

        Args:
            stream: the block's input at every token, overwritten.
            ready: the same, normalised first in a prenorm network, in the products' dtype.
            batch: what the blocks share.
            positions: for each row the tokens whose output is wanted; other tokens serve as keys only. Exact.
        """
        mixed = self.attention(ready, batch, positions)
        kept = stream if positions is None else batch.take(stream, positions)
        if not self.spec.prenorm:
            inner = self.norm1(kept, mixed)
            return kept, self.norm2(kept, self._feed_forward(inner))
        inner = self.norm2(kept, mixed)
        added = self._feed_forward(inner)
        if self.following is None:
            kept += added
            return kept, None
        return kept, self.following(kept, added)

    def _feed_forward(self, x: Tensor) -> Tensor:
        inner = self.up(x)
        return self.down(activate_gated(inner, self.spec.activation) if self.spec.gated else inner)


class FusedNetwork(FastNetwork):
    """`FastNetwork` with the kernels of `fused.py`."""

    def __init__(self, backbone: Transformer, dtype: torch.dtype, wanted: set[int]) -> None:
        self.backbone, self.wanted, self.dtype = backbone, wanted, dtype
        used = [block for block in backbone.blocks[: max(wanted)] if isinstance(block, Block)]
        prenorm = backbone.spec.prenorm
        first = [FusedNorm(block.norm1, dtype, postnorm=False) if prenorm else None for block in used]
        self.first = first[0] if first else None
        self.blocks = [
            FusedBlock(block, following, dtype) for block, following in zip(used, [*first[1:], None], strict=False)
        ]

    def _through(self, hidden: Hidden, batch: Batch, positions: Tensor | None) -> Iterator[Hidden]:
        """See `FastNetwork`."""
        stream = hidden.contiguous()
        ready = stream.to(self.dtype) if self.first is None else self.first(stream)
        for block in self.blocks:
            assert ready is not None
            stream, ready = block(stream, ready, batch, positions if block is self.blocks[-1] else None)
            yield stream
