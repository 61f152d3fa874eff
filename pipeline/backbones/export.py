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
from pipeline.backbones.weights import check_sha256, locate, read_state
from pipeline.errors import PermafrostError
from pipeline.identity import write_json


def require_exportable(backbone: Backbone) -> None:
    """Refuse what has no folder of the same shape to follow.

    Raises:
        PermafrostError: an LSTM, or an architecture with some of its layers left out.
    """
    settings = backbone.settings
    if isinstance(settings, LstmSource) or (isinstance(settings, RandomSource) and settings.layers is not None):
        raise PermafrostError("only a whole transformer can be handed on as a folder, not an LSTM or one with `layers`")


def write_backbone(backbone: Backbone, weights: dict[str, Tensor], folder: Path) -> str:
    """Write `weights`, by the names of `Transformer`, under the checkpoint's own; the sha256 of the file.

    Reading a family's checkpoint only moves numbers about, so what it does to their indices says where each belongs.
    Tensors that the network has none of (word embeddings, poolers) are left out.
    """
    settings = backbone.settings
    assert not isinstance(settings, LstmSource)
    like = read_state(locate(settings.like if isinstance(settings, RandomSource) else settings))
    ends = torch.tensor([tensor.numel() for tensor in like.values()]).cumsum(0).tolist()
    places = {
        name: torch.arange(end - tensor.numel(), end).view(tensor.shape)
        for (name, tensor), end in zip(like.items(), ends, strict=True)
    }
    flat, filled = torch.zeros(ends[-1]), torch.zeros(ends[-1], dtype=torch.bool)
    for name, place in tensors_of(backbone.config, places, backbone.spec).items():
        flat[place.flatten()] = weights[name].float().flatten()
        filled[place.flatten()] = True
    state = {name: flat[place].contiguous() for name, place in places.items() if filled[place].any()}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    write_json(folder / "config.json", backbone.config)
    return check_sha256(folder, None)
