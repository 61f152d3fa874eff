"""What the engine asks of a frozen network, and the two that answer: our own fast blocks, and any of transformers'."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from pipeline.backbones.generic import GenericNetwork
from pipeline.backbones.lstm import LstmLayer
from pipeline.backbones.places import Geometry
from pipeline.backbones.transformer import Block, Transformer
from pipeline.extraction.frozen_attention import take
from pipeline.extraction.frozen_block import FrozenBlock

Hidden = Float[Tensor, "batch token width"]


@runtime_checkable
class Network(Protocol):
    """A frozen network, prepared for one depth and one dtype."""

    def states(
        self, x: Hidden, mask: Bool[Tensor, "batch token"] | None, positions: Int64[Tensor, "batch kept"] | None
    ) -> Iterator[Hidden]:
        """Layer 0, layer 1 and so on to the depth, in float32; the deepest only at `positions`, where they are given.

        A yielded tensor may be overwritten once the next is asked for.
        """
        ...

    def normalise(self, hidden: Hidden) -> Hidden:
        """`final` from the deepest layer."""
        ...


class FastNetwork:
    """The families of `pipeline.backbones.families`, through prepared blocks; deeper ones are never run."""

    def __init__(self, backbone: Transformer, dtype: torch.dtype, depth: int) -> None:
        self.backbone = backbone
        self.blocks = [_frozen(block, dtype) for block in backbone.blocks[:depth]]

    def states(self, x: Hidden, mask: Tensor | None, positions: Tensor | None) -> Iterator[Hidden]:
        """See `Network.states`."""
        geometry = self.backbone.geometry(x.shape[1], x.device)
        hidden = self.backbone.embed(x)
        hidden = hidden.clone() if hidden is x else hidden
        yield hidden
        for depth, block in enumerate(self.blocks, start=1):
            hidden = block(hidden, mask, positions if depth == len(self.blocks) else None, geometry)
            yield hidden

    def normalise(self, hidden: Hidden) -> Hidden:
        """See `Network.normalise`."""
        return self.backbone.normalise(hidden)


def _frozen(block: nn.Module, dtype: torch.dtype) -> Callable[[Tensor, Tensor | None, Tensor | None, Geometry], Tensor]:
    """A block for extraction; an LSTM's layer runs as it is, in float32."""
    if isinstance(block, Block):
        return FrozenBlock(block, dtype)
    assert isinstance(block, LstmLayer)
    return lambda x, mask, positions, geometry: block(x) if positions is None else take(block(x), positions)


class SlowNetwork:
    """A model of transformers as its authors wrote it: every block runs, with nothing prepared."""

    def __init__(self, backbone: GenericNetwork, dtype: torch.dtype, depth: int) -> None:
        self.backbone = backbone.to(dtype)
        self.dtype, self.depth = dtype, depth

    def states(self, x: Hidden, mask: Tensor | None, positions: Tensor | None) -> Iterator[Hidden]:
        """See `Network.states`."""
        found = self.backbone(x.to(self.dtype), mask)[: self.depth + 1]
        for depth, hidden in enumerate(found):
            deepest = depth and depth == self.depth
            yield (take(hidden, positions) if deepest and positions is not None else hidden).float()

    def normalise(self, hidden: Hidden) -> Hidden:
        """See `Network.normalise`."""
        return self.backbone.normalise(hidden.to(self.dtype)).float()


def prepare(backbone: Transformer | GenericNetwork, dtype: torch.dtype, depth: int) -> Network:
    """A network made ready to run `depth` blocks with products in `dtype`."""
    if isinstance(backbone, GenericNetwork):
        return SlowNetwork(backbone, dtype, depth)
    return FastNetwork(backbone, dtype, depth)
