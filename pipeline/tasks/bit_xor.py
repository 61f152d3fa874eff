"""Bit XOR: two strings of bits, one bit a token, and their bitwise XOR read off the last tokens.

Source: "Pretrained Transformers as Universal Computation Engines" (arXiv 2103.05247), section 2.1. The paper trains
and tests on the same inputs, since 2 × 5 bits have only 1024 values; `split: unseen`, the default here, keeps the
test inputs out of training, `split: same` is the paper's.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

import numpy as np
from jaxtyping import UInt8
from pydantic import Field
from pydantic.dataclasses import dataclass

from pipeline.params import STRICT
from pipeline.tasks.task import Split, TaskData


@dataclass(frozen=True, config=STRICT)
class BitXor:
    """`bits` in each of the two strings; shares of the inputs held out for `validation` and `test`."""

    kind: Literal["bit_xor"]
    seed: int
    bits: Annotated[int, Field(ge=1, le=8)]
    split: Literal["unseen", "same"]
    validation: Annotated[float, Field(gt=0, lt=0.5)]
    test: Annotated[float, Field(gt=0, lt=0.5)]

    def load(self) -> TaskData:
        """All `4**bits` inputs, in an order drawn from the seed, cut into train, validation and test."""
        numbers = np.random.default_rng(self.seed).permutation(4**self.bits)
        inputs = bits_of(numbers, 2 * self.bits)
        labels = inputs[:, : self.bits] ^ inputs[:, self.bits :]
        held_out = [round(share * len(numbers)) for share in (self.validation, self.test)]
        return TaskData(
            kind="patches",
            classes=2,
            readout=self.bits,
            splits=_cut(inputs[..., None], labels, held_out[0], held_out[1], self.split),
            source={"name": "generated", "sha256": hashlib.sha256(inputs.tobytes()).hexdigest()},
            rules={"copy the second string": float(np.mean(labels == inputs[:, self.bits :]))},
        )


def _cut(inputs: np.ndarray, labels: np.ndarray, validation: int, test: int, split: str) -> dict[str, Split]:
    if split == "same":
        return {name: Split(inputs, labels) for name in ("train", "validation", "test")}
    train = len(inputs) - validation - test
    rows = {
        "train": slice(0, train),
        "validation": slice(train, train + validation),
        "test": slice(train + validation, None),
    }
    return {name: Split(inputs[part], labels[part]) for name, part in rows.items()}


def bits_of(numbers: np.ndarray, width: int) -> UInt8[np.ndarray, "number bit"]:
    """Each number's lowest `width` bits, the most significant first."""
    shifts = np.arange(width - 1, -1, -1)
    return ((numbers[:, None] >> shifts) & 1).astype(np.uint8)
