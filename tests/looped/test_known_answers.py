"""The specification's programs: results, instructions (HALT included) and steps (without it), on the network."""

from __future__ import annotations

import pytest
import torch

from pipeline.looped.assembler import assemble
from pipeline.looped.isa import SubleqProgram
from pipeline.looped.layout import Sizes
from pipeline.looped.library import subleq_program
from pipeline.looped.library.fpt_tasks import bit_xor, recall
from pipeline.looped.library.lists import reverse, search, sort
from pipeline.looped.numerics import PrecisionError
from pipeline.looped.runs import Run
from pipeline.looped.subleq import SubleqMachine
from tests.looped.test_subleq import MULTIPLY

LIST = [-7, -6, -5, -4, 3, 2, 1]
PAIRS = [(3, 11), (9, -22), (-4, 33), (7, 44)]


def solve(program: SubleqProgram, dtype: torch.dtype = torch.float32) -> Run[SubleqProgram]:
    return SubleqMachine.for_programs([program], dtype).run([program], fast=True)


@pytest.mark.parametrize(
    ("program", "answers", "instructions", "steps"),
    [
        (subleq_program("add"), {"y": [-15]}, 4, 3),
        (assemble(MULTIPLY), {"acc": [63]}, 5, 27),
        (reverse(LIST, 6), {"list": LIST[::-1]}, 26, 25),
        (search(LIST, 1, 6), {"found": [1], "index": [6]}, 58, 36),
        (search([3, 1, 2], 9, 6), {"found": [0], "index": [3]}, 26, None),
        (search([4, 4, 2], 4, 6), {"found": [1], "index": [0]}, 26, None),
        (bit_xor([1, 0, 1, 1, 0], [0, 1, 1, 0, 1]), {"out": [1, 1, 0, 1, 1]}, 22, 13),
        (recall(PAIRS, -4), {"out": [33]}, 34, 15),
        (recall(PAIRS, 5), {"out": [0]}, 34, None),
        (sort([3, -1, 2, -1], 6), {"list": [-1, -1, 2, 3]}, 56, None),
    ],
)
def test_program(program: SubleqProgram, answers: dict[str, list[int]], instructions: int, steps: int | None) -> None:
    run = solve(program)
    assert {name: run.values(name) for name in answers} == answers
    assert len(program.code) == instructions
    assert steps is None or run.steps == [steps]


@pytest.mark.parametrize(
    ("n", "result", "steps", "bits", "dtype"),
    [
        (0, 1, 2, 9, torch.float32),
        (1, 1, 17, 9, torch.float32),
        (5, 120, 107, 9, torch.float32),
        (8, 40320, 206, 18, torch.float32),
        (10, 3628800, 287, 24, torch.float64),
    ],
)
def test_factorial(n: int, result: int, steps: int, bits: int, dtype: torch.dtype) -> None:
    program = subleq_program("factorial", bits).with_values({"n": [n]})
    run = solve(program, dtype)
    assert (run.values("result"), run.steps, len(program.code)) == ([result], [steps], 18)


def test_factorial_of_ten_does_not_fit_float32_in_one_chunk() -> None:
    with pytest.raises(PrecisionError, match=r"24-bit words do not fit float32: at most 21 bits"):
        SubleqMachine(Sizes.of([subleq_program("factorial", 24)]), torch.float32)
