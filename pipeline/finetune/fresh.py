"""Examples that are made as they are trained on: the endless streams of synthetic tasks.

Bit XOR has a number of inputs that is fixed; its stream is all of them again and again, each time in a new order.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from jaxtyping import Integer
from pydantic import Field, TypeAdapter
from torch import Tensor

from pipeline.errors import PermafrostError
from pipeline.finetune.batches import reads_at_end, unpadded
from pipeline.tasks.bit_memory import BitMemory
from pipeline.tasks.bit_xor import BitXor
from pipeline.tasks.listops import ListOps
from pipeline.tasks.tokens import Tokens

Endless = BitMemory | BitXor | ListOps
APART = 40
"""Seeds of the fine-tune are 2**40 examples apart in the stream."""


@dataclass(frozen=True)
class Stream:
    """The train split as an endless stream; with seed 0 it begins with the examples that are stored.

    `length` is the number of tokens of an example, with padding.
    """

    task: Endless
    tokens: Tokens
    length: int
    device: torch.device

    def batch(self, size: int, seed: int, number: int) -> Integer[np.ndarray, " row"]:
        """The numbers of the examples of one batch."""
        return ((seed % 2**20) << APART) + np.arange(number * size, (number + 1) * size)

    def pick(self, rows: Integer[np.ndarray, " row"], step: int) -> tuple[Tensor, Tensor | None, Tensor]:
        """Inputs, lengths and labels of `rows`, a function of the task and of the rows alone."""
        tokens = self.tokens
        stored, labels = self.task.examples(self.task.seed, "train", rows)
        inputs = tokens.normalise(stored) if tokens.kind == "patches" else stored.astype(np.int32)
        lengths = None
        if tokens.kind == "ids" and not reads_at_end(tokens):
            lengths = torch.from_numpy((stored != tokens.pad_id).sum(1)).to(self.device)
        answers = torch.from_numpy(labels.astype(np.int64)).to(self.device)
        return *unpadded(torch.from_numpy(inputs).to(self.device), lengths), answers


def stream_of(tokens: Tokens, device: torch.device) -> Stream:
    """The stream whose beginning `tokens` holds.

    Raises:
        PermafrostError: the task has a fixed number of examples.
    """
    settings = tokens.manifest["identity"]["settings"]
    if settings.get("kind") not in ("bit_memory", "bit_xor", "listops") or settings.get("source") == "lra_files":
        raise PermafrostError(
            f"{tokens.task} is no endless stream: it has the examples that it has", mend="set finetune.examples: stored"
        )
    kinds = TypeAdapter(Annotated[Endless, Field(discriminator="kind")])
    task: Endless = kinds.validate_json(json.dumps(settings))
    first, _ = task.examples(task.seed, "train", np.arange(1))
    return Stream(task, tokens, first.shape[1], device)
