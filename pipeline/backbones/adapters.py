"""The input layer in front of a backbone: patches through a linear layer, ids through a table."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pipeline.backbones.init import linear_adapter
from pipeline.backbones.load import Backbone
from pipeline.errors import PermafrostError


def patch_adapter(features: int, backbone: Backbone, gain: float, seed: int) -> nn.Linear:
    """Orthogonal weights times `gain`, zero bias, drawn from `seed`."""
    return linear_adapter(features, backbone.spec.width, gain, seed)


def id_adapter(vocabulary: int, backbone: Backbone, seed: int) -> nn.Embedding:
    """A table of `vocabulary` vectors N(0, 1), drawn from `seed`, as `nn.Embedding` in the official code."""
    generator = torch.Generator().manual_seed(seed)
    return _table(torch.empty(vocabulary, backbone.spec.width).normal_(generator=generator))


def own_embedding(vocabulary: int, backbone: Backbone) -> nn.Embedding:
    """The backbone's own table, for ids that its own tokenizer made.

    Raises:
        PermafrostError: the table has fewer rows than the tokenizer has ids.
    """
    table = backbone.load_embedding()
    if len(table) < vocabulary:
        raise PermafrostError(
            f"the tokenizer has {vocabulary} ids, the backbone's embedding table {len(table)} rows",
            mend="tokenize the task with this backbone's own tokenizer",
        )
    return _table(table)


def _table(weight: Tensor) -> nn.Embedding:
    return nn.Embedding.from_pretrained(weight, freeze=True)
