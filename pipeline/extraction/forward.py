"""The frozen forward pass: inputs to the hidden states that are kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain

import torch
from jaxtyping import Float, Int64, Num
from torch import Tensor, nn

from pipeline.backbones.generic import GenericNetwork
from pipeline.backbones.transformer import Transformer
from pipeline.errors import PermafrostError
from pipeline.extraction.frozen_attention import take
from pipeline.extraction.graphs import CudaRecorder, GraphCache
from pipeline.extraction.network import FastNetwork, prepare
from pipeline.extraction.readout import ReadoutName, pool, positions
from pipeline.extraction.transfer import to_device
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
        # What transformers' own code or an LSTM would do while it is recorded is not ours to promise.
        self._recordable = self.device.type == "cuda" and isinstance(self.network, FastNetwork)
        self._whole: dict[int, Callable[[Tensor], Tensor]] = {}

    @torch.inference_mode()
    def read(
        self, inputs: Num[Tensor, "batch token *feature"], lengths: Int64[Tensor, " batch"], answers: int
    ) -> Float[Tensor, "batch kept state width"]:
        """Hidden states in float32 for one batch: of each layer its readouts. A GPU may not have computed them yet.

        Args:
            inputs: patches or ids, padded on the right, on the network's device.
            lengths: how many tokens of each row are real, on the CPU: what they decide is decided there, since asking a
                GPU means waiting for it. An empty row reads its first token.
            answers: the task's number of readout tokens.

        Everything but the products of the blocks runs in float32, the input layer too: its orthogonality is kept.
        """
        lengths = lengths.clamp(min=1)
        with torch.cuda.device_of(inputs):  # Triton and streams follow the current device, not their tensors'
            if not bool((lengths == inputs.shape[1]).all()):
                padded = torch.arange(inputs.shape[1]) < lengths[:, None]
                return self._states(inputs, to_device(lengths, inputs.device), padded, answers)
            if answers not in self._whole:
                forward = partial(self._full, answers)
                self._whole[answers] = GraphCache(forward, CudaRecorder()) if self._recordable else forward
            return self._whole[answers](inputs)

    def _full(self, answers: int, inputs: Tensor) -> Tensor:
        """Rows without padding. Nothing depends on numbers and all is made on the device, so a graph can hold it."""
        lengths = torch.full(inputs.shape[:1], inputs.shape[1], device=inputs.device)
        return self._states(inputs, lengths, None, answers)

    def _states(self, inputs: Tensor, lengths: Tensor, padded: Tensor | None, answers: int) -> Tensor:
        """`padded` is which tokens are real, on the CPU; None when all are."""
        tokens = inputs.shape[1]
        mask = torch.arange(tokens, device=inputs.device) < lengths[:, None]
        where: dict[ReadoutName, Tensor | None] = {
            name: positions(name, answers, lengths, tokens) for name in self.readouts
        }
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
