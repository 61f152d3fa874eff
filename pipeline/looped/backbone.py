"""The SUBLEQ machine as a backbone: its loops unrolled into layers, so that every hidden state of a run can be cached.

Layer 0 is a state as it came in; layer 4 (t - 1) + i is what block i of loop t leaves: 1 fetch, 2 load, 3 subtract,
4 write and branch. There are no embeddings, positions or norms: the state is its own input, and `final` its last layer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from pipeline.errors import PermafrostError
from pipeline.looped.flops import layer_shapes, pass_flops
from pipeline.looped.layout import Layout, Sizes
from pipeline.looped.model import Block, LoopedTransformer
from pipeline.looped.numerics import PrecisionError
from pipeline.looped.subleq import SubleqMachine

BLOCKS = 4
"""Layers of a loop, for words that need one subtract layer only."""


@dataclass(frozen=True)
class LoopedSpec:
    """`loops` passes of the machine of some sizes, and how large that is."""

    sizes: Sizes
    loops: int

    @property
    def width(self) -> int:
        """Rows of a state."""
        return Layout(self.sizes).width

    @property
    def layers(self) -> int:
        """Blocks of all loops."""
        return BLOCKS * self.loops

    @property
    def positions(self) -> int:
        """Columns of a state."""
        return self.sizes.columns

    def network(self) -> LoopedTransformer:
        """One loop's blocks, in float32 on the CPU."""
        return SubleqMachine(self.sizes).network

    def flops(self) -> int:
        """FLOPs of one example: all loops, every column."""
        return self.loops * pass_flops(self.positions, self.width, layer_shapes(self.network()))


class LoopedBackbone:
    """A machine as the engine sees a backbone: what it is made of, and the network when it is wanted."""

    def __init__(self, settings: Any, sizes: Sizes, loops: int) -> None:
        """`settings` is the entry in params.yaml, which travels to workers."""
        self.settings, self.spec = settings, LoopedSpec(sizes, loops)

    @property
    def weights(self) -> dict[str, Any]:
        """What identifies every number of the network: sizes, loops, and a digest of one loop's weights."""
        digest = hashlib.sha256()
        for name, weights in sorted(self.spec.network().state_dict().items()):
            digest.update(f"{name} {tuple(weights.shape)} ".encode() + weights.numpy().tobytes())
        return {"looped": asdict(self.spec), "sha256": digest.hexdigest()}

    def load_frozen(self) -> LoopedNetwork:
        """The network in float32, on the CPU."""
        return LoopedNetwork(self.spec)

    def load_witness(self) -> None:
        """transformers has no such network."""

    def require_states(self, task: str, kind: str, shape: tuple[int, ...]) -> None:
        """Refuse inputs that are not states of this machine.

        Args:
            task: its name, for the error.
            kind: `patches` or `ids`.
            shape: of one example.

        Raises:
            PermafrostError: with both shapes.
        """
        wanted = (self.spec.positions, self.spec.width)
        if kind != "patches" or shape != wanted:
            raise PermafrostError(
                f"{task} has {kind} of shape {shape}; the looped transformer reads its own states, of shape {wanted}",
                mend="a task of kind looped_states with the backbone's cells, code and word_bits",
            )


class LoopedNetwork(nn.Module):
    """The loops one after the other, with the parts that the engine's reader asks for. Nothing trains."""

    def __init__(self, spec: LoopedSpec) -> None:
        super().__init__()
        self.spec, self.network = spec, spec.network()

    @property
    def depth(self) -> int:
        """Blocks of all loops."""
        return self.spec.layers

    def prepared(self, dtype: torch.dtype, wanted: set[int]) -> PreparedLoops:
        """Ready to give the `wanted` layers, computing in `dtype`.

        Raises:
            PrecisionError: the dtype cannot hold the words or addresses.
        """
        try:
            machine = SubleqMachine(self.spec.sizes, dtype, device=next(self.buffers()).device)
        except PrecisionError as error:
            raise PrecisionError(error.what, mend="cache.compute_dtype: float32") from error
        blocks = [block for _ in range(self.spec.loops) for block in machine.network.layers if isinstance(block, Block)]
        return PreparedLoops(blocks[: max(wanted)], dtype, wanted)


class PreparedLoops:
    """What the engine asks of a network (`pipeline.extraction.network.Network`), from the blocks of all loops."""

    takes_positions = False

    def __init__(self, blocks: list[Block], dtype: torch.dtype, wanted: set[int]) -> None:
        self.blocks, self.dtype, self.wanted = blocks, dtype, wanted

    def states(
        self, x: Float[Tensor, "batch token width"], mask: Tensor | None, positions: Int64[Tensor, "batch kept"] | None
    ) -> Iterator[tuple[int, Float[Tensor, "batch kept width"]]]:
        """The wanted layers in float32, at every token; nothing is padded."""
        assert mask is None, "states are never padded"
        hidden = x
        if 0 in self.wanted:
            yield 0, hidden
        for depth, block in enumerate(self.blocks, start=1):
            hidden = block(hidden.to(self.dtype)).to(x.dtype)
            if depth in self.wanted:
                yield depth, hidden

    def normalise(self, hidden: Float[Tensor, "batch token width"]) -> Float[Tensor, "batch token width"]:
        """`final`: the last state itself."""
        return hidden
