"""The frozen forward pass: inputs to the hidden states that are kept."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64, Num
from torch import Tensor, nn

from pipeline.backbones.transformer import Transformer
from pipeline.errors import PermafrostError
from pipeline.extraction.frozen_block import frozen, take
from pipeline.extraction.readout import ReadoutName, pool, positions


class Reader:
    """A frozen network with its input layer, and which hidden states are read off it.

    `layers` are names: a block's number, 0 for the embeddings, or `final`. Blocks beyond the deepest are never run, and
    the deepest computes the wanted positions only.
    """

    def __init__(
        self,
        adapter: nn.Module,
        backbone: Transformer,
        layers: tuple[str, ...],
        readout: ReadoutName,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Prepare `backbone`, in float32 and on its device, for products in `dtype`."""
        self.adapter = adapter
        self.backbone = backbone
        self.layers = layers
        self.readout: ReadoutName = readout
        self.device, self.dtype = next(backbone.parameters()).device, dtype
        depths = [self._depth(name) for name in layers]
        self.blocks = [frozen(block, dtype) for block in backbone.blocks[: max(depths)]]
        self.wanted = set(depths)

    @torch.inference_mode()
    def read(
        self, inputs: Num[Tensor, "batch token *feature"], lengths: Int64[Tensor, " batch"], answers: int
    ) -> Float[Tensor, "batch kept layer width"]:
        """Hidden states in float32 for one batch.

        Args:
            inputs: patches or ids, padded on the right.
            lengths: how many tokens of each row are real.
            answers: the task's number of readout tokens.

        Everything but the products of the blocks runs in float32, the input layer too: its orthogonality is kept.
        """
        tokens = inputs.shape[1]
        mask = torch.arange(tokens, device=inputs.device) < lengths[:, None]
        where = positions(self.readout, answers, lengths, tokens)
        padded = None if bool(mask.all()) else mask
        hidden = self.backbone.embed(self.adapter(inputs))
        kept = {0: self._keep(hidden, where, mask)} if 0 in self.wanted else {}
        for depth, block in enumerate(self.blocks, start=1):
            deepest = depth == len(self.blocks)
            hidden = block(hidden, padded, where if deepest else None)
            if depth in self.wanted:
                kept[depth] = hidden if deepest and where is not None else self._keep(hidden, where, mask)
        if where is not None:
            states = [self._finish(name, kept[self._depth(name)]) for name in self.layers]
        else:  # what is pooled is normalised before it is pooled
            states = [
                kept[self._depth(name)] if name != "final" else self._pooled_final(hidden, mask) for name in self.layers
            ]
        return torch.stack([state.float() for state in states], dim=2)

    def _keep(self, hidden: Tensor, where: Tensor | None, mask: Tensor) -> Tensor:
        return pool(self.readout, hidden, mask) if where is None else take(hidden, where)

    def _finish(self, name: str, kept: Tensor) -> Tensor:
        return self.backbone.normalise(kept) if name == "final" else kept

    def _pooled_final(self, hidden: Tensor, mask: Tensor) -> Tensor:
        return pool(self.readout, self.backbone.normalise(hidden), mask)

    def _depth(self, name: str) -> int:
        return len(self.backbone.blocks) if name == "final" else int(name)


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
