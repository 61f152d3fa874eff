"""The backbone that an entry of params.yaml means, and what differs between kinds of it: kernels and counted cost."""

from __future__ import annotations

from importlib.metadata import version

import torch

from pipeline.backbones.generic import generic_flops
from pipeline.backbones.load import Backbone, find_backbone
from pipeline.backbones.lstm_settings import LstmSource
from pipeline.backbones.settings import BackboneSettings, LoopedSource
from pipeline.backbones.spec import Spec
from pipeline.costs.flops import TransformerSizes, forward_flops
from pipeline.extraction.products import PLAIN, SLOW, kernels_for, reason_for
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


def example_flops(backbone: AnyBackbone, tokens: Tokens) -> int:
    """Operations of the forward pass over one example."""
    spec = backbone.spec
    if isinstance(backbone, LoopedBackbone):
        return backbone.spec.flops()
    if not isinstance(spec, Spec):
        return generic_flops(backbone.folder, tokens.length, spec.width)
    features = tokens.features if tokens.kind == "patches" else 0
    sizes = (spec.width, spec.layers, spec.inner_width, tokens.length, tokens.readout, features)
    widths = (spec.query_width, spec.key_width, spec.gated, isinstance(backbone.settings, LstmSource))
    return forward_flops(TransformerSizes(*sizes, tokens.scores, *widths))
