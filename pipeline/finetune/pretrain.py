"""Trains a whole network on bit memory, to be frozen afterwards: the paper's third source of weights.

Source: arXiv 2103.05247, section 3.2 and table 2. The stream of examples is endless, as in the official code; the
network's own dropout is on, and the whole table of positions trains.
"""

from __future__ import annotations

from typing import Literal

from pydantic.dataclasses import dataclass
from torch import Tensor

from pipeline.finetune.settings import Positive, Rate, Recipe
from pipeline.params import STRICT, Seed


@dataclass(frozen=True, config=STRICT)
class PretrainSettings:
    """The section `pretrain` of params.yaml; names as in `finetune`. The task is the entry `tasks.bit_memory`."""

    seed: Seed
    steps: Positive
    batch_size: Positive
    evaluate_every: Positive
    lr: Rate
    compute_dtype: Literal["bfloat16", "float32"]
    threads: Positive

    def recipe(self) -> Recipe:
        """The fine-tune that does it: everything trains."""
        return Recipe(
            trainable=("all",),
            examples="fresh",
            stop_at=None,
            patience=None,
            lr_sweep=None,
            position_rows="all",
            final_norm=True,
            frozen_dropout=True,
            clip=1.0,
            input_dropout=0.1,
            adapter_gain=1.41,
            **vars(self),
        )


def body_of(parameters: dict[str, Tensor]) -> dict[str, Tensor]:
    """The network's own weights among those of the model around it, by their names in `Transformer`."""
    return {
        name.removeprefix("backbone."): weight for name, weight in parameters.items() if name.startswith("backbone.")
    }
