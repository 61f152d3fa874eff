"""What the engine asks of a frozen network, and who answers: our fast blocks, loops, an LSTM, transformers' code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from pipeline.backbones.generic import GenericNetwork
from pipeline.backbones.lstm import Lstm
from pipeline.backbones.transformer import Block, Transformer
from pipeline.extraction.frozen_attention import Batch
from pipeline.extraction.frozen_block import FrozenBlock
from pipeline.extraction.packing import Packing
from pipeline.extraction.sums import sum_and_norm
from pipeline.extraction.transfer import to_device
from pipeline.looped.backbone import LoopedNetwork

Hidden = Float[Tensor, "batch token width"]


@runtime_checkable
class Network(Protocol):
    """A frozen network, prepared for the wanted layers and one dtype.

    `takes_positions`: the deepest layer, beyond layer 0, comes at the asked positions alone: no others were computed.
    """

    takes_positions: bool

    def states(
        self, x: Hidden, mask: Bool[Tensor, "batch token"] | None, positions: Int64[Tensor, "batch kept"] | None
    ) -> Iterator[tuple[int, Hidden]]:
        """The wanted layers with their numbers, in float32, at every token unless the network takes `positions`.

        `mask` is on the CPU, where what follows from it is known without waiting for a GPU; None when all tokens are
        real. A yielded tensor may be overwritten once the next is asked for.
        """
        ...

    def normalise(self, hidden: Hidden) -> Hidden:
        """`final` from the deepest layer."""
        ...


class FastNetwork:
    """The families of `pipeline.backbones.families`, through prepared blocks; deeper ones are never run."""

    takes_positions = True

    def __init__(self, backbone: Transformer, dtype: torch.dtype, wanted: set[int]) -> None:
        self.backbone, self.wanted, self.dtype = backbone, wanted, dtype
        used = [block for block in backbone.blocks[: max(wanted)] if isinstance(block, Block)]
        begins = [sum_and_norm(block.norm1, dtype, False) if block.spec.prenorm else None for block in used]
        self.first = begins[0] if begins else None
        following = [*begins[1:], None]
        self.blocks = [FrozenBlock(block, norm, dtype) for block, norm in zip(used, following, strict=False)]

    def states(self, x: Hidden, mask: Tensor | None, positions: Tensor | None) -> Iterator[tuple[int, Hidden]]:
        """See `Network.states`."""
        packing = None if mask is None else Packing(mask).to(x.device)
        real = None if mask is None else to_device(mask, x.device)
        batch = Batch(x.shape[1], real, packing, self.backbone.geometry(x.shape[1], x.device))
        hidden = self.backbone.embed(x)
        if 0 in self.wanted:
            yield 0, hidden
        hidden = packing.pack(hidden) if packing else hidden.clone() if hidden is x else hidden
        for depth, state in enumerate(self._through(hidden, batch, positions), start=1):
            if depth in self.wanted:
                taken = positions is not None and depth == len(self.blocks)
                yield depth, state if taken else batch.padded(state)

    def _through(self, hidden: Hidden, batch: Batch, positions: Tensor | None) -> Iterator[Hidden]:
        """What leaves each block; the last one's at `positions` alone."""
        stream = hidden.contiguous()
        ready = stream.to(self.dtype) if self.first is None else self.first(stream)
        for block in self.blocks:
            assert ready is not None, "only the last block leaves nothing for a next"
            stream, ready = block(stream, ready, batch, positions if block is self.blocks[-1] else None)
            yield stream

    def normalise(self, hidden: Hidden) -> Hidden:
        """See `Network.normalise`."""
        return self.backbone.normalise(hidden)


class RecurrentNetwork:
    """An LSTM as it is, in float32."""

    takes_positions = False

    def __init__(self, backbone: Lstm, wanted: set[int]) -> None:
        self.backbone, self.wanted = backbone, wanted

    def states(self, x: Hidden, mask: Tensor | None, positions: Tensor | None) -> Iterator[tuple[int, Hidden]]:
        """See `Network.states`. Padding is on the right, where no real token sees it."""
        hidden = self.backbone.embed(x)
        if 0 in self.wanted:
            yield 0, hidden
        for depth, layer in enumerate(self.backbone.blocks[: max(self.wanted)], start=1):
            hidden = layer(hidden)
            if depth in self.wanted:
                yield depth, hidden

    def normalise(self, hidden: Hidden) -> Hidden:
        """See `Network.normalise`."""
        return self.backbone.normalise(hidden)


class SlowNetwork:
    """A model of transformers as its authors wrote it: every block runs, with nothing prepared."""

    takes_positions = False

    def __init__(self, backbone: GenericNetwork, dtype: torch.dtype, wanted: set[int]) -> None:
        self.backbone = backbone.to(dtype)
        self.dtype, self.wanted = dtype, wanted

    def states(self, x: Hidden, mask: Tensor | None, positions: Tensor | None) -> Iterator[tuple[int, Hidden]]:
        """See `Network.states`."""
        found = self.backbone(x.to(self.dtype), None if mask is None else to_device(mask, x.device))
        for depth in sorted(self.wanted):
            yield depth, found[depth].float()

    def normalise(self, hidden: Hidden) -> Hidden:
        """See `Network.normalise`."""
        return self.backbone.normalise(hidden.to(self.dtype)).float()


def prepare(backbone: Transformer | GenericNetwork | LoopedNetwork, dtype: torch.dtype, wanted: set[int]) -> Network:
    """A network made ready to give the `wanted` layers, with products in `dtype`."""
    if isinstance(backbone, LoopedNetwork):
        return backbone.prepared(dtype, wanted)
    if isinstance(backbone, Lstm):
        return RecurrentNetwork(backbone, wanted)
    if isinstance(backbone, GenericNetwork):
        return SlowNetwork(backbone, dtype, wanted)
    return FastNetwork(backbone, dtype, wanted)
