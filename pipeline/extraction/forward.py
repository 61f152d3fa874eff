"""The frozen forward pass: inputs to the hidden states that are kept."""

from __future__ import annotations

from itertools import chain

import torch
from jaxtyping import Float, Int64, Num
from torch import Tensor, nn

from pipeline.backbones.generic import GenericNetwork
from pipeline.backbones.transformer import Transformer
from pipeline.errors import PermafrostError
from pipeline.extraction.frozen_attention import take
from pipeline.extraction.network import prepare
from pipeline.extraction.readout import ReadoutName, pool, positions
from pipeline.looped.backbone import LoopedNetwork


class Reader:
    """A frozen network with its input layer, and which hidden states are read off it.

    `layers` are names: a block's number, 0 for the embeddings, or `final`. Blocks beyond the deepest are never run, and
    with one readout the deepest computes the wanted positions only.
    """

    def __init__(
        self,
        adapter: nn.Module,
        backbone: Transformer | GenericNetwork | LoopedNetwork,
        layers: tuple[str, ...],
        readouts: tuple[ReadoutName, ...],
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Prepare `backbone`, in float32 and on its device, for products in `dtype`."""
        self.adapter = adapter
        self.layers, self.dtype = layers, dtype
        self.readouts = readouts
        self.device = next(chain(backbone.parameters(), backbone.buffers())).device
        depths = [backbone.depth if name == "final" else int(name) for name in layers]
        self.deepest = max(depths)
        self.names = {depth: [name for name, at in zip(layers, depths, strict=True) if at == depth] for depth in depths}
        self.network = prepare(backbone, dtype, set(depths))

    @torch.inference_mode()
    def read(
        self, inputs: Num[Tensor, "batch token *feature"], lengths: Int64[Tensor, " batch"], answers: int
    ) -> Float[Tensor, "batch kept state width"]:
        """Hidden states in float32 for one batch: of each layer its readouts.

        Args:
            inputs: patches or ids, padded on the right.
            lengths: how many tokens of each row are real; an empty row reads its first one.
            answers: the task's number of readout tokens.

        Everything but the products of the blocks runs in float32, the input layer too: its orthogonality is kept.
        """
        tokens, lengths = inputs.shape[1], lengths.clamp(min=1)
        mask = torch.arange(tokens, device=inputs.device) < lengths[:, None]
        where: dict[ReadoutName, Tensor | None] = {
            name: positions(name, answers, lengths, tokens) for name in self.readouts
        }
        padded = None if bool(mask.all()) else mask
        asked = where[self.readouts[0]] if len(where) == 1 else None
        kept: dict[tuple[str, ReadoutName], Tensor] = {}
        for depth, hidden in self.network.states(self.adapter(inputs), padded, asked):
            taken = asked is not None and self.network.takes_positions and 0 < depth == self.deepest
            for name in self.names[depth]:
                for readout, at in where.items():
                    if at is None:  # what is pooled is normalised before it is pooled
                        state = self.network.normalise(hidden) if name == "final" else hidden
                        kept[name, readout] = pool(readout, state, mask)
                    else:
                        state = hidden.clone() if taken else take(hidden, at)
                        kept[name, readout] = self.network.normalise(state) if name == "final" else state
        return torch.stack([kept[name, readout].float() for name in self.layers for readout in where], dim=2)


def layer_names(layers: tuple[int | str, ...], blocks: int) -> tuple[str, ...]:
    """The wanted layers by name, `all` written out, checked against the number of blocks.

    Raises:
        PermafrostError: a layer is deeper than the network, or is named twice.
    """
    if layers == ("all",):
        return (*(str(depth) for depth in range(blocks + 1)), "final")
    names = tuple(str(layer) for layer in layers)
    for name in names:
        if name == "all":
            raise PermafrostError("cache.layers: all stands alone", mend="cache.layers: [all]")
        if name != "final" and int(name) > blocks:
            raise PermafrostError(
                f"cache.layers asks for layer {name}, the backbone has {blocks}", mend=f"use 0 to {blocks}, or final"
            )
    if len(set(names)) < len(names):
        raise PermafrostError(f"cache.layers names a layer twice: {', '.join(names)}")
    return names
