"""The backbone that an entry of params.yaml means: a network of the families, or the looped transformer."""

from __future__ import annotations

from pipeline.backbones.load import Backbone, find_backbone
from pipeline.backbones.settings import BackboneSettings, LoopedSource
from pipeline.looped.backbone import LoopedBackbone
from pipeline.looped.layout import Sizes

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
