"""The section `finetune` of params.yaml: everything about the FPT fine-tune that can change a number."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from pipeline.params import STRICT

Group = Literal["output", "layernorm", "input", "positions"]
Positive = Annotated[int, Field(gt=0)]
Probability = Annotated[float, Field(ge=0, lt=1)]


@dataclass(frozen=True, config=STRICT)
class FinetuneSettings:
    """The recipe; defaults in params.yaml are the official code's (kzl/universal-computation, `run.py`).

    `trainable`: what trains; attention and feed-forward never do. `seed` decides adapter, head, order and dropout.
    `frozen_dropout`: the backbone's own dropout while training, which the official run leaves on. `input_dropout` acts
    behind the adapter. `stop_at`: training ends early when validation accuracy reaches this, checked every
    `evaluate_every` steps; null runs all `steps`.
    """

    trainable: Annotated[tuple[Group, ...], Field(min_length=1)]
    seed: int
    steps: Positive
    batch_size: Positive
    evaluate_every: Positive
    stop_at: Annotated[float, Field(gt=0, le=1)] | None
    lr: Annotated[float, Field(gt=0)]
    clip: Annotated[float, Field(gt=0)]
    adapter_gain: Annotated[float, Field(gt=0)]
    input_dropout: Probability
    frozen_dropout: bool
    compute_dtype: Literal["bfloat16", "float32"]
    threads: Positive
