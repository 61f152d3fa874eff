"""The frozen forward pass: inputs to the hidden states that are kept."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pipeline.backbones.transformer import Transformer
from pipeline.errors import PermafrostError


@dataclass(frozen=True)
class Reader:
    """A frozen network with its adapter, and which hidden states are read off it.

    `layers` are names: a block's number, 0 for the embeddings, or `final`. `readout` is the number of last tokens.
    """

    adapter: nn.Linear
    backbone: Transformer
    layers: tuple[str, ...]
    readout: int

    @torch.inference_mode()
    def read(self, inputs: Float[Tensor, "batch token feature"]) -> Float[Tensor, "batch readout layer width"]:
        """Hidden states in float32 for one batch.

        The adapter runs in float32, so that its orthogonality is not rounded away; then the backbone's own dtype.
        """
        backbone = self.backbone
        deepest = max(self._depth(name) for name in self.layers)
        hidden = backbone.embed(self.adapter(inputs).to(backbone.position.dtype))
        kept: dict[int, Tensor] = {0: hidden[:, -self.readout :]}
        for index in range(deepest):
            last = self.readout if index == deepest - 1 else None
            hidden = backbone.blocks[index](hidden, last)
            kept[index + 1] = hidden[:, -self.readout :]
        states = [
            backbone.normalise(kept[self._depth(name)]) if name == "final" else kept[self._depth(name)]
            for name in self.layers
        ]
        return torch.stack(states, dim=2).float()

    def _depth(self, name: str) -> int:
        return len(self.backbone.blocks) if name == "final" else int(name)


def layer_names(layers: tuple[int | str, ...], blocks: int) -> tuple[str, ...]:
    """The wanted layers by name, checked against the number of blocks.

    Raises:
        PermafrostError: a layer is deeper than the network, or is named twice.
    """
    names = tuple(str(layer) for layer in layers)
    for name in names:
        if name != "final" and int(name) > blocks:
            raise PermafrostError(
                f"cache.layers asks for layer {name}, the backbone has {blocks}", mend=f"use 0 to {blocks}, or final"
            )
    if len(set(names)) < len(names):
        raise PermafrostError(f"cache.layers names a layer twice: {', '.join(names)}")
    return names
