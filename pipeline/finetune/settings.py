"""The section `finetune` of params.yaml: everything about the FPT fine-tune that can change a number."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from pipeline.finetune.groups import PATTERN
from pipeline.params import STRICT

Group = Annotated[str, Field(pattern=PATTERN)]
Positive = Annotated[int, Field(gt=0)]
Rate = Annotated[float, Field(gt=0)]
Probability = Annotated[float, Field(ge=0, lt=1)]


@dataclass(frozen=True, config=STRICT)
class FinetuneSettings:
    """The recipe; defaults in params.yaml are the official code's (kzl/universal-computation, `run.py`).

    `trainable`: what trains: output, layernorm, input, positions, feedforward, attention, bias (the backbone's: BitFit)
    or all, the layered ones also for some layers, `layernorm[8:]`, `attention[-1]`. `final_norm`: whether the norm
    behind the last block may train. `position_rows`: the rows that the task uses, or all of the table as in the
    official code. `seed` decides adapter, head, order and dropout. `frozen_dropout`: the backbone's own dropout while
    training, which the official run leaves on. `input_dropout` acts behind the adapter of patches.

    `stop_at`: training ends early when validation accuracy reaches this, checked every `evaluate_every` steps; null
    runs all `steps`. `patience`: it also ends after so many evaluations in a row without a better one; null never.
    `lr_sweep`: learning rates to run one by one in place of `lr`, chosen on validation; or null.
    """

    trainable: Annotated[tuple[Group, ...], Field(min_length=1)]
    final_norm: bool
    position_rows: Literal["used", "all"]
    seed: int
    steps: Positive
    batch_size: Positive
    evaluate_every: Positive
    stop_at: Annotated[float, Field(gt=0, le=1)] | None
    patience: Positive | None
    lr: Rate
    lr_sweep: Annotated[tuple[Rate, ...], Field(min_length=1)] | None
    clip: Annotated[float, Field(gt=0)]
    adapter_gain: Annotated[float, Field(gt=0)]
    input_dropout: Probability
    frozen_dropout: bool
    compute_dtype: Literal["bfloat16", "float32"]
    threads: Positive
