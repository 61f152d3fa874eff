"""Where a backbone's weights come from: the entries under `backbones` in params.yaml."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from pipeline.backbones.lstm_settings import LstmSource
from pipeline.params import STRICT, Params, Seed

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


@dataclass(frozen=True, config=STRICT)
class PackageSource:
    """Weights inside an installed Python package: no download, no hub."""

    source: Literal["package"]
    package: str
    folder: str
    sha256: Sha256 | None = None


@dataclass(frozen=True, config=STRICT)
class PathSource:
    """A local folder with config.json and weights, as `save_pretrained` writes it."""

    source: Literal["path"]
    path: str
    sha256: Sha256 | None = None


@dataclass(frozen=True, config=STRICT)
class HubSource:
    """A Hugging Face id at a fixed revision, downloaded on use."""

    source: Literal["hub"]
    id: str
    revision: str
    sha256: Sha256 | None = None


@dataclass(frozen=True, config=STRICT)
class RandomSource:
    """The architecture of `like` with weights drawn anew.

    The law is written out because transformers changed its own between versions: weights and positions N(0, std),
    biases 0, norms 1 and 0; with `scale_residual` the two projections into the residual stream are divided by
    √(2 × layers), as GPT-2's paper describes and as transformers does since 4.7.
    `law: statistics` instead draws each tensor N(mean, std) of the pretrained one, and uses neither `std` nor
    `scale_residual` (arXiv 2103.05247, table 9; there by layer, here by tensor).
    `layers` keeps so many blocks of the architecture: a smaller network from scratch, and 0 is no backbone at all, only
    positions, norms and what is put around them.
    `like` is a whole entry and not a name (in YAML an anchor: `like: *minilm`), so that DVC sees it change.
    """

    source: Literal["random"]
    like: Annotated[PackageSource | PathSource | HubSource, Field(discriminator="source")]
    seed: Seed
    std: Annotated[float, Field(gt=0)] = 0.02
    scale_residual: bool = False
    law: Literal["normal", "statistics"] = "normal"
    layers: Annotated[int, Field(ge=0)] | None = None


@dataclass(frozen=True, config=STRICT)
class LoopedSource:
    """The SUBLEQ machine of `pipeline/looped` for states of `cells`, `code` and `word_bits`, four layers a loop.

    The names and sizes are those of a task of kind `looped_states`.
    """

    source: Literal["looped"]
    cells: Annotated[int, Field(ge=1)]
    code: Annotated[int, Field(ge=2)]
    word_bits: Annotated[int, Field(ge=2, le=21)]
    loops: Annotated[int, Field(ge=1)]


PretrainedSource = PackageSource | PathSource | HubSource
BackboneSettings = PretrainedSource | RandomSource | LoopedSource | LstmSource


def with_whole_paths(settings: BackboneSettings) -> BackboneSettings:
    """The same with a local folder's path written out, for a process that stands in another folder."""
    if isinstance(settings, RandomSource):
        like = with_whole_paths(settings.like)
        assert isinstance(like, PackageSource | PathSource | HubSource)
        return replace(settings, like=like)
    if isinstance(settings, PathSource):
        return replace(settings, path=str(Path(settings.path).expanduser().resolve()))
    return settings


def backbone_settings(params: Params, name: str) -> BackboneSettings:
    """The checked entry of the backbone `name`.

    Raises:
        ParamsError: params.yaml has no such backbone, or its entry is not valid.
    """
    return params.entry("backbones", name, Annotated[BackboneSettings, Field(discriminator="source")])
