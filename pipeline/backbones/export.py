"""Writes trained weights as a folder that `source: path` and transformers read: config.json and model.safetensors."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from pipeline.backbones.families import tensors_of
from pipeline.backbones.load import Backbone
from pipeline.backbones.lstm_settings import LstmSource
from pipeline.backbones.settings import RandomSource
from pipeline.backbones.weights import check_sha256, read_state
from pipeline.errors import PermafrostError
from pipeline.identity import write_json


def places_in_checkpoint(backbone: Backbone) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Where each number stands: every tensor of the checkpoint's names numbered through, and the same by our names.

    Reading a family's checkpoint only moves numbers about, so what it does to their indices says where each belongs.

    Raises:
        PermafrostError: an LSTM, an architecture with some of its layers left out, or one whose checkpoints do not hold
            all that the network has: there is no folder of the same shape.
    """
    settings = backbone.settings
    if isinstance(settings, LstmSource) or (isinstance(settings, RandomSource) and settings.layers is not None):
        raise PermafrostError("only a whole transformer can be handed on as a folder, not an LSTM or one with `layers`")
    like = read_state(backbone.folder)
    ends = torch.tensor([tensor.numel() for tensor in like.values()]).cumsum(0).tolist()
    theirs = {
        name: torch.arange(end - tensor.numel(), end).view(tensor.shape)
        for (name, tensor), end in zip(like.items(), ends, strict=True)
    }
    ours = tensors_of(backbone.config, theirs, backbone.architecture)
    made = [name for name, place in ours.items() if place.is_floating_point()]
    if made:
        raise PermafrostError(f"a checkpoint of {backbone.config['model_type']} does not hold {', '.join(made)}")
    return theirs, ours


def write_backbone(backbone: Backbone, weights: dict[str, Tensor], folder: Path) -> str:
    """Write `weights`, by the names of `Transformer`, under the checkpoint's own; the sha256 of the file.

    Tensors that the network has none of (word embeddings, poolers) are left out.

    Raises:
        PermafrostError: see `places_in_checkpoint`.
    """
    theirs, ours = places_in_checkpoint(backbone)
    numbers = sum(place.numel() for place in theirs.values())
    flat, filled = torch.zeros(numbers), torch.zeros(numbers, dtype=torch.bool)
    for name, place in ours.items():
        flat[place.flatten()] = weights[name].float().flatten()
        filled[place.flatten()] = True
    state = {name: flat[place].contiguous() for name, place in theirs.items() if filled[place].any()}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    write_json(folder / "config.json", backbone.config)
    return check_sha256(folder, None)
