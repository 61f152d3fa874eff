"""The backbone that an entry of params.yaml means, and what differs between kinds of it: kernels and counted cost."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from jaxtyping import Integer

from pipeline.backbones.generic import generic_flops
from pipeline.backbones.load import Backbone, find_backbone
from pipeline.backbones.lstm_settings import LstmSource
from pipeline.backbones.settings import BackboneSettings, LoopedSource
from pipeline.backbones.spec import Spec
from pipeline.costs.flops import TransformerSizes, forward_flops
from pipeline.device import device_kind
from pipeline.extraction.forward import layer_names
from pipeline.extraction.products import PLAIN, SLOW, kernels_for, reason_for
from pipeline.extraction.settings import CacheSettings
from pipeline.looped.backbone import LoopedBackbone
from pipeline.looped.layout import Sizes
from pipeline.tasks.tokens import Tokens

AnyBackbone = Backbone | LoopedBackbone


def find_source(settings: BackboneSettings) -> AnyBackbone:
    """Find a backbone, without loading it.

    Raises:
        PermafrostError: as `find_backbone`.
    """
    if isinstance(settings, LoopedSource):
        sizes = Sizes(settings.cells + 1, settings.code, settings.word_bits)  # one cell more: Z
        return LoopedBackbone(settings, sizes, settings.loops)
    return find_backbone(settings)


def kernels_of(backbone: AnyBackbone, device: torch.device, dtype: torch.dtype) -> tuple[str, str]:
    """Whose products run, as the manifest has it, and in a sentence for the user."""
    if isinstance(backbone, LoopedBackbone) or isinstance(backbone.settings, LstmSource):
        return PLAIN, PLAIN
    if not isinstance(backbone.spec, Spec):
        return f"transformers {version('transformers')}", SLOW
    return kernels_for(device, dtype), reason_for(device, dtype)


def made_with(backbone: AnyBackbone, settings: CacheSettings, device: torch.device) -> tuple[dict[str, Any], str]:
    """What decides the bytes beside the identity, as the manifest says it; and why these kernels."""
    kernels, reason = kernels_of(backbone, device, getattr(torch, settings.compute_dtype))
    versions = {"torch": torch.__version__, "numpy": np.__version__}
    return {"versions": versions, "device": device_kind(device), "kernels": kernels}, reason


def pass_flops(
    backbone: AnyBackbone, tokens: Tokens, settings: CacheSettings, lengths: Integer[np.ndarray, " row"]
) -> int:
    """Operations of the forward pass over inputs of these lengths.

    As much as is run: to the deepest layer that is wanted, there for the positions that are kept, and without padding
    but in a network that transformers' own code runs.
    """
    spec = backbone.spec
    if isinstance(backbone, LoopedBackbone):
        return len(lengths) * backbone.spec.flops()
    if not isinstance(spec, Spec):
        return len(lengths) * generic_flops(backbone.folder, tokens.length, spec.width)
    features = tokens.features if tokens.kind == "patches" else 0
    widths = (spec.query_width, spec.key_width, spec.gated, isinstance(backbone.settings, LstmSource))
    names = layer_names(settings.layers, spec.layers)
    deepest = max(spec.layers if name == "final" else int(name) for name in names)
    first, *others = settings.readout
    kept = None if others else {"task": tokens.readout, "last": 1}.get(first)
    total = 0
    for length, count in zip(*np.unique(lengths, return_counts=True), strict=True):
        size = max(1, int(length))
        last = size if kept is None else min(kept, size)
        total += int(count) * forward_flops(
            TransformerSizes(spec.width, deepest, spec.inner_width, size, last, features, 0, *widths)
        )
    return total
