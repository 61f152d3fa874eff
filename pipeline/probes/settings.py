"""The section `probe` of params.yaml."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from pipeline.params import STRICT


@dataclass(frozen=True, config=STRICT)
class ProbeSettings:
    """`penalties` λ to try, in the loss mean cross-entropy + λ/2 ‖W‖²; `iterations` at most for each; `threads`."""

    penalties: Annotated[tuple[Annotated[float, Field(gt=0)], ...], Field(min_length=1)]
    iterations: Annotated[int, Field(gt=0)]
    threads: Annotated[int, Field(gt=0)]
