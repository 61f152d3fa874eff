"""Bit XOR: strings of bits in patches, and their bitwise XOR read off the last tokens.

Source: "Pretrained Transformers as Universal Computation Engines" (arXiv 2103.05247), section 2.1: two strings of 5
bits, one bit a token. The paper trains and tests on the same inputs, since 2 × 5 bits have only 1024 values;
`split: unseen` keeps the test inputs out of training, `split: same` is the paper's.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from jaxtyping import Integer, UInt8
from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from pipeline.params import STRICT, Seed
from pipeline.tasks import draws
from pipeline.tasks.places import HERE, Places
from pipeline.tasks.task import SPLITS, Block, Split, TaskData


@dataclass(frozen=True, config=STRICT)
class BitXor:
    """`patterns` strings of `bits` each, `patch` bits a token; shares held out for `validation` and `test`."""

    kind: Literal["bit_xor"]
    seed: Seed
    bits: Annotated[int, Field(ge=1, le=10)]
    split: Literal["unseen", "same"]
    validation: Annotated[float, Field(gt=0, lt=0.5)]
    test: Annotated[float, Field(gt=0, lt=0.5)]
    patterns: Annotated[int, Field(ge=2, le=20)] = 2
    patch: Annotated[int, Field(ge=1)] = 1

    @model_validator(mode="after")
    def _fits(self) -> BitXor:
        if self.bits % self.patch:
            raise ValueError(f"patch {self.patch} does not divide bits {self.bits}")
        if self.bits * self.patterns > 20:
            raise ValueError(f"bits × patterns is {self.bits * self.patterns}, beyond 20 (a million inputs)")
        return self

    def load(self, places: Places = HERE) -> TaskData:
        """All `2**(bits * patterns)` inputs, in an order drawn from the seed, cut into train, validation and test."""
        rows = self._rows()

        def split(name: str) -> Split:
            return Split(len(rows[name]), lambda start, stop: Block(*self._examples(rows[name][start:stop])))

        return TaskData(
            kind="patches",
            classes=2,
            readout=self.bits // self.patch,
            splits={name: split(name) for name in SPLITS},
            source={"name": "generated"},
            choices={"split": self.split},
            rules={"copy the last string": lambda train: self._copy_last},
        )

    def examples(
        self, seed: int, split: str, rows: Integer[np.ndarray, " row"]
    ) -> tuple[UInt8[np.ndarray, "row token bit"], UInt8[np.ndarray, "row answer"]]:
        """Inputs and labels of the examples `rows` of a split, which comes again from its end on, in a new order."""
        numbers = self._rows(seed)[split]
        passes, places = np.divmod(rows, len(numbers))
        for again in np.unique(passes[passes > 0]):
            here = passes == again
            places[here] = draws.permutation(seed, f"bit_xor, pass {again}", len(numbers))[places[here]]
        return self._examples(numbers[places])

    def _rows(self, seed: int | None = None) -> dict[str, np.ndarray]:
        """For each split the numbers whose bits are its inputs."""
        numbers = draws.permutation(self.seed if seed is None else seed, "bit_xor", 2 ** (self.bits * self.patterns))
        if self.split == "same":
            return dict.fromkeys(SPLITS, numbers)
        validation, test = (round(share * len(numbers)) for share in (self.validation, self.test))
        train = len(numbers) - validation - test
        return dict(zip(SPLITS, np.split(numbers, [train, train + validation]), strict=True))

    def _examples(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        strings = bits_of(numbers, self.bits * self.patterns)
        labels = np.bitwise_xor.reduce(strings.reshape(-1, self.patterns, self.bits), axis=1)
        return strings.reshape(len(numbers), self.patterns * self.bits // self.patch, self.patch), labels

    def _copy_last(self, block: Block) -> np.ndarray:
        return block.inputs.reshape(len(block), -1)[:, -self.bits :]


def bits_of(numbers: np.ndarray, width: int) -> UInt8[np.ndarray, "number bit"]:
    """Each number's lowest `width` bits, the most significant first."""
    shifts = np.arange(width - 1, -1, -1)
    return ((numbers[:, None] >> shifts) & 1).astype(np.uint8)
