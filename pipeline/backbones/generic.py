"""Any other model of transformers, by its folder: slower, with nothing fused, but with no code of ours to be wrong.

Also the witness that the fast path is compared with. Only safetensors are read and no code of a checkpoint is run.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from pipeline.backbones.weights import WeightsError
from pipeline.errors import PermafrostError


@dataclass(frozen=True)
class Outline:
    """What a model says of its size: hidden size, number of blocks, and how many tokens it can read."""

    width: int
    layers: int
    positions: int


@dataclass(frozen=True)
class Inside:
    """Where transformers keeps a family's list of blocks, and the norm behind them, if there is one."""

    blocks: str
    norm: str | None


class GenericNetwork(nn.Module):
    """Vectors in, all hidden states out, by transformers' own code.

    transformers gives the last of its `hidden_states` behind the last norm; so here the deepest layer equals `final`,
    unless `inside` says where the two can be told apart.
    """

    def __init__(self, model: nn.Module, depth: int, inside: Inside | None = None) -> None:
        """Wrap a model of transformers that has `depth` blocks."""
        super().__init__()
        self.model, self.depth = model, depth
        self.final_norm = model.get_submodule(inside.norm) if inside is not None and inside.norm else nn.Identity()
        self._caught: Tensor | None = None
        if inside is not None:
            blocks = model.get_submodule(inside.blocks)
            assert isinstance(blocks, nn.ModuleList)
            blocks[-1].register_forward_hook(self._catch)

    def forward(
        self, x: Float[Tensor, "batch token width"], mask: Bool[Tensor, "batch token"] | None
    ) -> list[Float[Tensor, "batch token width"]]:
        """Layer 0 to the deepest."""
        found = self.model(
            inputs_embeds=x, attention_mask=None if mask is None else mask.long(), output_hidden_states=True
        )
        deepest = found.last_hidden_state if self._caught is None else self._caught
        return [*found.hidden_states[:-1], deepest]

    def normalise(self, hidden: Float[Tensor, "batch token width"]) -> Float[Tensor, "batch token width"]:
        """`final` from the deepest layer."""
        return self.final_norm(hidden)

    def embedding(self) -> Float[Tensor, "id width"]:
        """The model's own table of word embeddings.

        Raises:
            PermafrostError: it has none.
        """
        try:
            return self.model.get_input_embeddings().weight.detach()  # pyright: ignore
        except (AttributeError, NotImplementedError) as error:
            raise PermafrostError(f"{type(self.model).__name__} has no table of embeddings: it reads no ids") from error

    def _catch(self, _module: nn.Module, _inputs: Any, out: Any) -> None:
        self._caught = out if isinstance(out, Tensor) else out[0]


def outline_of(config: dict[str, Any]) -> Outline:
    """A model's size from its config.json.

    Raises:
        PermafrostError: it does not say its hidden size or its number of layers under the usual names.
    """
    from transformers import AutoConfig

    kept = {name: value for name, value in config.items() if name != "model_type"}
    try:
        read = AutoConfig.for_model(config.get("model_type", ""), **kept)
        return Outline(
            read.hidden_size, read.num_hidden_layers, getattr(read, "max_position_embeddings", None) or 2**31
        )
    except (ValueError, AttributeError) as error:
        raise PermafrostError(f"model_type {config.get('model_type')!r} cannot be read: {error}") from error


def load_generic(folder: Path, inside: Inside | None = None) -> GenericNetwork:
    """The model in a folder, in float32, in eval mode; of an encoder-decoder the encoder.

    With `inside` the deepest layer is in front of the last norm.

    Raises:
        WeightsError: there are no safetensors, they are damaged, or the architecture takes no vectors as inputs.
    """
    from transformers import AutoModel
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        model = AutoModel.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False, use_safetensors=True, dtype=torch.float32
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise WeightsError(f"transformers cannot load {folder}: {error}", mend="convert it to safetensors") from error
    if hasattr(model, "encoder") and hasattr(model, "decoder"):
        model = model.get_encoder()
    return GenericNetwork(model.eval().requires_grad_(False), model.config.num_hidden_layers, inside)


def generic_flops(folder: Path, tokens: int, width: int) -> int:
    """Operations of one forward pass over one example, counted by PyTorch on the very model."""
    from torch.utils.flop_counter import FlopCounterMode

    network = load_generic(folder).to("meta")
    with FlopCounterMode(display=False) as counter:
        network(torch.empty(1, tokens, width, device="meta"), None)
    return counter.get_total_flops()
