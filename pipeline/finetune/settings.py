"""The section `finetune` of params.yaml: everything about the FPT fine-tune that can change a number."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from pipeline.finetune.groups import PATTERN
from pipeline.params import STRICT, Seed, distinct

Group = Annotated[str, Field(pattern=PATTERN)]
Positive = Annotated[int, Field(gt=0)]
Rate = Annotated[float, Field(gt=0)]
Probability = Annotated[float, Field(ge=0, le=0.99)]
Clip = Rate | Literal["off"]


@dataclass(frozen=True, config=STRICT)
class Shared:
    """What paper and official code do not do differently, or leave open.

    `trainable`: what trains: output, layernorm, input, positions, feedforward, attention, recurrent (an LSTM's), bias
    (the backbone's: BitFit), lora(r) (low-rank updates of attention) or all; those of layers also for some of them,
    `layernorm[8:]`, `attention[-1]`. `seed` decides adapter, head, order and dropout.

    `examples`: epochs over the stored train split, or the endless stream that a synthetic task's split begins.

    `stop_at`: training ends early when accuracy on validation, or R² of a regression, reaches this, checked every
    `evaluate_every` steps; null runs all `steps`. `patience`: it also ends after so many evaluations in a row without a
    better one; null never. Better is higher accuracy, then lower loss; of a regression lower squared error.
    `lr_sweep`: learning rates to run one by one in place of `lr`, chosen on validation; or null.
    """

    trainable: Annotated[tuple[Group, ...], Field(min_length=1)]
    seed: Seed
    steps: Positive
    batch_size: Positive
    evaluate_every: Positive
    examples: Literal["stored", "fresh"]
    stop_at: Annotated[float, Field(gt=0, le=1)] | None
    patience: Positive | None
    lr_sweep: Annotated[tuple[Rate, ...], Field(min_length=1), AfterValidator(distinct)] | None
    compute_dtype: Literal["bfloat16", "float32"]
    threads: Positive


@dataclass(frozen=True, config=STRICT)
class Recipe(Shared):
    """A whole recipe.

    `position_rows`: the rows that the task uses train, or all of the table. `final_norm`: whether the norm behind the
    last block may train, also where `trainable` is all. `frozen_dropout`: the backbone's own dropout while training.
    `clip`: the largest norm of the gradient. `input_dropout` acts behind the adapter of patches, `adapter_gain`
    multiplies that adapter's orthogonal matrix.
    """

    position_rows: Literal["used", "all"]
    final_norm: bool
    frozen_dropout: bool
    lr: Rate
    clip: Clip
    input_dropout: Probability
    adapter_gain: Rate


@dataclass(frozen=True, config=STRICT)
class FinetuneSettings(Shared):
    """A recipe of which `variant` gives all that is null: `pipeline.finetune.variants` makes it whole."""

    variant: Literal["paper", "code"]
    position_rows: Literal["used", "all"] | None
    final_norm: bool | None
    frozen_dropout: bool | None
    lr: Rate | None
    clip: Clip | None
    input_dropout: Probability | None
    adapter_gain: Rate | None
