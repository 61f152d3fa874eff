"""An LSTM's entry under `backbones` in params.yaml."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from pipeline.params import STRICT, Seed

Positive = Annotated[int, Field(gt=0)]


@dataclass(frozen=True, config=STRICT)
class LstmSource:
    """An LSTM with weights drawn from `seed` (`pipeline.backbones.lstm`).

    `residual` adds each layer's input to its output, `layernorm` follows, `positions` adds a table of `tokens` rows to
    the input; the paper's LSTM* of table 3 has residual and positions. Frozen unless the fine-tune's `trainable` names
    `recurrent`.
    """

    source: Literal["lstm"]
    seed: Seed
    width: Positive = 768
    layers: Positive = 3
    layernorm: bool = True
    residual: bool = False
    positions: bool = False
    tokens: Positive = 1024
