"""A backbone from its entry in params.yaml: the weights found, checked and read into a frozen `Transformer`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pipeline.backbones.families import FAMILIES, embedding_of, family_of, spec_of, tensors_of, words_of
from pipeline.backbones.generic import GenericNetwork, Outline, load_generic, outline_of
from pipeline.backbones.init import draw_like, draw_weights
from pipeline.backbones.lstm import draw_lstm, spec_of_lstm
from pipeline.backbones.lstm_settings import LstmSource
from pipeline.backbones.settings import BackboneSettings, LoopedSource, PretrainedSource, RandomSource
from pipeline.backbones.spec import Spec
from pipeline.backbones.transformer import Transformer
from pipeline.backbones.weights import check_sha256, locate, read_config, read_state
from pipeline.errors import PermafrostError
from pipeline.identity import identity_hash

TABLE_STREAM = 2**32


@dataclass(frozen=True)
class Backbone:
    """A backbone that was found but not yet read. `weights` identifies every number in it."""

    settings: PretrainedSource | RandomSource | LstmSource
    config: dict[str, Any]
    spec: Spec | Outline
    weights: dict[str, Any]

    def load_frozen(self) -> Transformer | GenericNetwork:
        """The network as extraction reads it: one of the families, or any other model that transformers knows.

        Raises:
            PermafrostError: the weights cannot be read or do not fit the architecture.
        """
        return self.load() if isinstance(self.spec, Spec) else load_generic(self.folder)

    def load_witness(self) -> GenericNetwork | None:
        """The same network by transformers' own code, to compare with; None where it cannot be had.

        It cannot for weights that were drawn here, and for a family whose model takes no vectors as inputs.
        """
        family = family_of(self.config)
        if isinstance(self.settings, RandomSource | LstmSource) or (family is not None and family.inside is None):
            return None
        return load_generic(self.folder, None if family is None else family.inside)

    @property
    def architecture(self) -> Spec:
        """What makes the network one of the families.

        Raises:
            PermafrostError: it is none of them.
        """
        if not isinstance(self.spec, Spec):
            raise PermafrostError(
                f"a {self.config['model_type']} can be cached and probed, but not fine-tuned: only the families can",
                mend=f"use one of {', '.join(FAMILIES)}",
            )
        return self.spec

    @property
    def folder(self) -> Path:
        """Where config.json stands; a drawn LSTM has none."""
        assert not isinstance(self.settings, LstmSource)
        return locate(self.settings.like if isinstance(self.settings, RandomSource) else self.settings)

    def load(self) -> Transformer:
        """The network in float32, in eval mode, with nothing to train.

        Raises:
            PermafrostError: the weights cannot be read or do not fit the architecture, or it is none of the families.
        """
        if isinstance(self.settings, LstmSource):
            return draw_lstm(self.settings)
        with torch.device("meta"):
            model = Transformer(self.architecture)
        if isinstance(self.settings, RandomSource):
            model = model.to_empty(device="cpu")
            if self.settings.law == "statistics":
                draw_like(model, self._tensors(self.settings.like), self.settings.seed)
            else:
                draw_weights(model, self.settings.seed, self.settings.std, self.settings.scale_residual)
        else:
            state = self._tensors(self.settings)
            try:
                model.load_state_dict({name: part.float().contiguous() for name, part in state.items()}, assign=True)
            except RuntimeError as error:
                raise PermafrostError(f"the weights in {self.folder} do not fit its config.json: {error}") from error
        return model.eval().requires_grad_(False)

    def _tensors(self, source: PretrainedSource) -> dict[str, Tensor]:
        return tensors_of(self.config, read_state(locate(source)), self.architecture)

    def load_embedding(self) -> Tensor:
        """The embedding table of the backbone's own tokenizer, `(id, width)`, in float32.

        Raises:
            PermafrostError: the architecture has none, or the weights cannot be read.
        """
        if isinstance(self.settings, LstmSource):
            raise PermafrostError("an LSTM has no tokenizer of its own: it cannot read this task's ids")
        if isinstance(self.settings, RandomSource):
            # A stream of its own, so that the network's weights do not depend on whether its table is wanted.
            generator = torch.Generator().manual_seed(self.settings.seed + TABLE_STREAM)
            mean, std = 0.0, self.settings.std
            if self.settings.law == "statistics":
                pretrained = embedding_of(self.config, read_state(self.folder)).float()
                mean, std = float(pretrained.mean()), float(pretrained.std(correction=0))
            return torch.empty(words_of(self.config), self.spec.width).normal_(mean, std, generator=generator)
        if not isinstance(self.spec, Spec):
            return load_generic(self.folder).embedding()
        return embedding_of(self.config, read_state(locate(self.settings))).float()


def find_backbone(settings: BackboneSettings) -> Backbone:
    """Find a backbone's folder, read its architecture and check its weights' digest, without loading them.

    Raises:
        PermafrostError: the folder, the config or the weights are missing, unknown, or not the ones named; or the entry
            is the looped transformer, which `pipeline.extraction.sources` finds.
    """
    if isinstance(settings, LoopedSource):
        raise PermafrostError("the looped transformer has nothing to train", mend="cache and probe it instead")
    if isinstance(settings, LstmSource):
        return Backbone(settings, {}, spec_of_lstm(settings), {"drawn": asdict(settings)})
    source = settings.like if isinstance(settings, RandomSource) else settings
    folder = locate(source)
    config = read_config(folder)
    weights: dict[str, Any]
    if isinstance(settings, RandomSource) and settings.law == "statistics":
        drawn = {"seed": settings.seed, "statistics_of": check_sha256(folder, source.sha256)}
        weights = {"drawn": drawn, "config_sha256": identity_hash(config)}
    elif isinstance(settings, RandomSource):
        law = {"seed": settings.seed, "std": settings.std, "scale_residual": settings.scale_residual}
        weights = {"drawn": law, "config_sha256": identity_hash(config)}
    else:
        weights = {"sha256": check_sha256(folder, source.sha256), "config_sha256": identity_hash(config)}
    if family_of(config) is None and not isinstance(settings, RandomSource):
        return Backbone(settings, config, outline_of(config), weights)
    spec = spec_of(config)
    if isinstance(settings, RandomSource) and settings.layers is not None:
        if settings.layers > spec.layers:
            raise PermafrostError(f"`layers: {settings.layers}` of an architecture that has {spec.layers}")
        spec, weights = replace(spec, layers=settings.layers), weights | {"layers": settings.layers}
    return Backbone(settings, config, spec, weights)
