"""States of the looped transformer as a task: a random SUBLEQ program as the machine reads it, and what comes of it.

Inputs are start states of the SUBLEQ machine (`pipeline/looped/layout.py`), one column a token; the answers are taken
from the interpreter, `after` instructions later. A backbone of `source: looped` turns the one into the other, so a
probe on its hidden states shows where in a loop an answer comes into being, and where it goes again.

The machine finds columns by the address in them and not by their place, so those that carry the answer stand last,
where every task is read: the memory cells, or else the scratch column with its registers.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from jaxtyping import Int8, Integer, UInt8
from pydantic import Field
from pydantic.dataclasses import dataclass

from pipeline.params import STRICT, Seed
from pipeline.tasks import draws
from pipeline.tasks.places import HERE, Places
from pipeline.tasks.task import SPLITS, Split, TaskData

if TYPE_CHECKING:
    from pipeline.looped.isa import SubleqProgram

Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, config=STRICT)
class LoopedStates:
    """Programs of `code` instructions, HALT included, on `cells` words of `word_bits` bits (and the cell Z).

    `ask`, each after `after` instructions: the `counter`, which instruction comes next; the `memory`, every bit of
    every cell; the `difference`, every bit of the word that the last of these instructions has written.
    `train`, `validation` and `test` are numbers of examples.
    """

    kind: Literal["looped_states"]
    seed: Seed
    ask: Literal["counter", "memory", "difference"]
    train: Count
    validation: Count
    test: Count
    after: Annotated[int, Field(ge=1)] = 3
    cells: Annotated[int, Field(ge=1)] = 3
    code: Annotated[int, Field(ge=2)] = 6
    word_bits: Annotated[int, Field(ge=2, le=21)] = 4

    def load(self, places: Places = HERE) -> TaskData:
        """The first examples of each split's endless stream."""

        return TaskData(
            kind="patches",
            classes=self.code if self.ask == "counter" else 2,
            readout=self.cells if self.ask == "memory" else 1,
            splits={name: Split.drawn(getattr(self, name), partial(self.examples, self.seed, name)) for name in SPLITS},
            source={"name": "generated"},
        )

    def examples(
        self, seed: int, split: str, rows: Integer[np.ndarray, " row"]
    ) -> tuple[Int8[np.ndarray, "row column width"], UInt8[np.ndarray, "row answer"]]:
        """States (−1, 0, +1) and answers of the examples `rows`; bits with the least significant first."""
        import torch

        from pipeline.looped.layout import Layout, Sizes

        layout = Layout(Sizes(self.cells + 1, self.code, self.word_bits))
        scratch, cells, others = [0], [*range(1, 1 + self.cells)], [*range(1 + self.cells, layout.sizes.columns)]
        order = [*scratch, *others, *cells] if self.ask == "memory" else [*cells, *others, *scratch]
        programs = self.programs(seed, split, rows if len(rows) else np.zeros(1, np.int64))
        states = layout.encode(programs, torch.float32).to(torch.int8).numpy()[:, order]
        answers = np.array([self._answers(program) for program in programs], np.uint8)
        return states[: len(rows)], answers[: len(rows)]

    def programs(self, seed: int, split: str, rows: Integer[np.ndarray, " row"]) -> list[SubleqProgram]:
        """The programs of the examples `rows`, with random words, operands and targets. No instruction writes to Z."""
        from pipeline.looped.isa import ZERO, Subleq, SubleqProgram, Symbol

        lines, zero = self.code - 1, self.cells
        drawn = draws.words(seed, f"looped_states/{split}", rows, self.cells + 3 * lines)
        half = 1 << self.word_bits - 1
        words = draws.below(drawn[:, : self.cells], 2 * half) - half
        a, b, targets = (
            draws.below(drawn[:, self.cells + field * lines :][:, :lines], bound)
            for field, bound in enumerate((self.cells + 1, self.cells, self.code))
        )
        halt = Subleq(zero, zero, lines)
        return [
            SubleqProgram(
                memory=(*words[row].tolist(), 0),
                code=(*map(Subleq, a[row].tolist(), b[row].tolist(), targets[row].tolist()), halt),
                word_bits=self.word_bits,
                symbols={ZERO: Symbol(zero, 1)},
                labels={},
            )
            for row in range(len(rows))
        ]

    def _answers(self, program: SubleqProgram) -> list[int]:
        from pipeline.looped.oracle import subleq_states

        *_, (before, _), (counter, memory) = islice(subleq_states(program), self.after + 1)
        if self.ask == "counter":
            return [counter]
        words = memory[: self.cells] if self.ask == "memory" else [memory[program.code[before].b]]
        return [word >> bit & 1 for word in words for bit in range(self.word_bits)]
