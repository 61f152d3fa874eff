"""The section `grid` of params.yaml: which pairs of task and backbone are run."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from pipeline.params import STRICT

Names = Annotated[tuple[str, ...], Field(min_length=1)]


@dataclass(frozen=True, config=STRICT)
class Grid:
    """Names from `tasks` and `backbones`; `pretrain` names the backbones that are first trained on bit memory."""

    tasks: Names
    backbones: Names
    pretrain: tuple[str, ...]
