"""The section `grid` of params.yaml: which pairs of task and backbone are run."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from pipeline.params import STRICT, distinct

Names = Annotated[tuple[str, ...], Field(min_length=1), AfterValidator(distinct)]


@dataclass(frozen=True, config=STRICT)
class Grid:
    """Names from `tasks` and `backbones`; `pretrain` names the backbones that are first trained on bit memory."""

    tasks: Names
    backbones: Names
    pretrain: Annotated[tuple[str, ...], AfterValidator(distinct)]
