"""The input layer in front of a backbone, one for every kind of input; drawn from a seed."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pipeline.backbones.init import linear_adapter


def make_adapter(kind: Literal["patches", "ids"], size: int, width: int, gain: float, seed: int) -> nn.Module:
    """A new input layer: `size` is the numbers in a patch, or the ids of the vocabulary.

    Patches go through an orthogonal matrix times `gain`. Ids go through an embedding drawn from N(0, 1), PyTorch's own
    law for `nn.Embedding`, which the official code leaves as it is.
    """
    if kind == "patches":
        return linear_adapter(size, width, gain, seed)
    generator = torch.Generator().manual_seed(seed)
    return nn.Embedding(size, width, _weight=torch.empty(size, width).normal_(generator=generator))


def embedding_adapter(table: Float[Tensor, "id width"]) -> nn.Embedding:
    """The backbone's own table as the input layer, for ids of its own tokenizer."""
    return nn.Embedding.from_pretrained(table, freeze=True)
