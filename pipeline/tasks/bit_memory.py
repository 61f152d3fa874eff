"""Bit memory: patterns of ±1, then one of them with bits masked; the whole pattern is to be recalled.

Source: "Pretrained Transformers as Universal Computation Engines" (arXiv 2103.05247), section 2.1, and its code: 5
patterns of 1000 bits, patches of 50 bits, so 6 × 20 = 120 tokens; the answer is read off the last 20, 50 bits each,
and every bit counts alone, visible ones included. Copying what is visible and guessing the rest scores 75 %. Deviation:
the code draws from an unseeded generator without end; here example i of a split is a function of the seed, and stored
splits have the sizes that params give.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

import numpy as np
from jaxtyping import Int8, Integer, UInt8
from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from pipeline.params import STRICT, Seed
from pipeline.tasks import draws
from pipeline.tasks.places import HERE, Places
from pipeline.tasks.task import SPLITS, Block, Split, TaskData

Size = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, config=STRICT)
class BitMemory:
    """`patterns` of `bits` each, `patch` bits a token, each bit of the query masked with probability `masked`.

    `train`, `validation` and `test` are numbers of examples.
    """

    kind: Literal["bit_memory"]
    seed: Seed
    train: Annotated[int, Field(ge=0)]
    validation: Annotated[int, Field(ge=0)]
    test: Annotated[int, Field(ge=0)]
    patterns: Size = 5
    bits: Size = 1000
    patch: Size = 50
    masked: Annotated[float, Field(ge=0, le=1)] = 0.5

    @model_validator(mode="after")
    def _fits(self) -> BitMemory:
        if self.bits % self.patch:
            raise ValueError(f"patch {self.patch} does not divide bits {self.bits}")
        return self

    def load(self, places: Places = HERE) -> TaskData:
        """The first examples of each split's endless stream."""

        return TaskData(
            kind="patches",
            classes=2,
            readout=self.bits // self.patch,
            splits={name: Split.drawn(getattr(self, name), partial(self.examples, self.seed, name)) for name in SPLITS},
            source={"name": "generated"},
            rules={"copy what is visible, guess the rest": lambda train: self._copy_visible},
        )

    def examples(
        self, seed: int, split: str, rows: Integer[np.ndarray, " row"]
    ) -> tuple[Int8[np.ndarray, "row token bit"], UInt8[np.ndarray, "row answer"]]:
        """Inputs (−1, +1, and 0 where masked) and labels (0 for −1, 1 for +1) of the examples `rows`."""
        count = self.patterns * self.bits
        pattern_words = -(-count // 64)
        drawn = draws.words(seed, f"bit_memory/{split}", rows, pattern_words + 1 + self.bits)
        bits = bits_of_words(drawn[:, :pattern_words])[:, :count].reshape(-1, self.patterns, self.bits)
        chosen = draws.below(drawn[:, pattern_words], self.patterns)
        labels = bits[np.arange(len(rows)), chosen]
        signs = bits.astype(np.int8) * 2 - 1
        visible = draws.unit(drawn[:, pattern_words + 1 :]) >= self.masked
        query = np.where(visible, labels.astype(np.int8) * 2 - 1, 0).astype(np.int8)
        inputs = np.concatenate([signs, query[:, None]], axis=1)
        return inputs.reshape(len(rows), (self.patterns + 1) * self.bits // self.patch, self.patch), labels

    def _copy_visible(self, block: Block) -> np.ndarray:
        """Masked bits are guessed to be −1."""
        return (block.inputs.reshape(len(block), -1)[:, -self.bits :] > 0).astype(np.int64)


def bits_of_words(drawn: np.ndarray) -> UInt8[np.ndarray, "row bit"]:
    """The 64 bits of each word, the most significant first."""
    return np.unpackbits(drawn.astype(">u8").view(np.uint8), axis=1)
