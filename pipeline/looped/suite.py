"""The whole library run on the networks, and the tasks that the looped transformer shares with FPT."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pipeline.identity import write_json
from pipeline.looped.fleq import FleqMachine
from pipeline.looped.flops import layer_shapes, pass_flops
from pipeline.looped.isa import FleqProgram, SubleqProgram, fill_cell
from pipeline.looped.library.catalog import Case, fleq_cases, largest_error, subleq_cases
from pipeline.looped.library.fpt_tasks import bit_memory, bit_xor
from pipeline.looped.library.listops import OPERATORS, Expression, evaluate, listops
from pipeline.looped.numerics import name_of
from pipeline.looped.oracle import run_fleq, run_subleq
from pipeline.looped.runs import Run
from pipeline.looped.subleq import SubleqMachine

MAX_STEPS = 10_000
SEED = 20230130
EXAMPLES = 64
BITS = 5
STRINGS, STRING_BITS = 5, 8


def run_programs(metrics: Path, plot: Path) -> list[dict[str, Any]]:
    """Run everything, write the rows to `metrics` (JSON) and a plot of the errors to `plot` (PNG); returns the rows."""
    from pipeline.looped.pictures import draw_errors

    rows = list(all_rows())
    write_json(metrics, rows)
    draw_errors([row for row in rows if row["kind"] == "program"], plot)
    return rows


def all_rows() -> Iterator[dict[str, Any]]:
    """One row for each program of the library and dtype, then one for each task."""
    for name, case in subleq_cases().items():
        machine = SubleqMachine.for_programs([case.program])
        run, expected = machine.run([case.program], MAX_STEPS), run_subleq(case.program, MAX_STEPS)
        yield library_row(name, case, machine, run, expected.steps)
    for name, case in fleq_cases().items():
        expected = run_fleq(case.program, MAX_STEPS)
        for dtype in (torch.float64, torch.float32):
            machine = FleqMachine.for_programs([case.program], dtype)
            run = machine.run([case.program], MAX_STEPS)
            yield library_row(name, case, machine, run, expected.steps)
    yield from task_rows()


def library_row(
    name: str, case: Case[Any], machine: SubleqMachine | FleqMachine, run: Run[Any], steps: int
) -> dict[str, Any]:
    """The row of one program; it is correct if it halts after the interpreter's `steps` on the known answer."""
    error = largest_error(case.program, run.memory()[0], case.answers)
    tolerance = case.tolerance[machine.dtype == torch.float32]
    return _row(name, "program", machine, run, correct=run.steps == [steps] and error <= tolerance, error=error)


def task_rows() -> Iterator[dict[str, Any]]:
    """Bit XOR, bit memory and ListOps, each over one batch of seeded examples.

    Plain Python writes each example into the input, as a program and its data; the network computes the answer.
    """
    builders: Mapping[str, Callable[[np.random.Generator], tuple[Any, list[Any]]]] = {
        "bit_xor": xor_example,
        "bit_memory": memory_example,
        "listops": listops_example,
    }
    for name, build in builders.items():
        random = np.random.default_rng(SEED)
        programs, answers = zip(*(build(random) for _ in range(EXAMPLES)), strict=True)
        if isinstance(programs[0], SubleqProgram):
            machine = SubleqMachine.for_programs(programs)
            run = machine.run(programs, MAX_STEPS, fast=True)  # the same states, without 170 idle queries
        else:
            machine = FleqMachine.for_programs(programs, torch.float32)
            run = machine.run(programs, MAX_STEPS)
        errors = [
            largest_error(program, memory, {"out": answer})
            for program, memory, answer in zip(programs, run.memory(), answers, strict=True)
        ]
        tolerance = 0.0 if isinstance(machine, SubleqMachine) else 0.5  # bits are read by their sign
        solved = [error <= tolerance for error in errors]
        row = _row(name, "task", machine, run, correct=all(solved), error=max(errors))
        yield {**row, "accuracy": sum(solved) / len(solved), "examples": len(solved)}


def xor_example(random: np.random.Generator) -> tuple[SubleqProgram, list[int]]:
    """Two strings of 5 bits, as in the FPT paper, and their XOR."""
    x, y = random.integers(0, 2, (2, BITS)).tolist()
    return bit_xor(x, y), [a ^ b for a, b in zip(x, y, strict=True)]


def memory_example(random: np.random.Generator) -> tuple[FleqProgram, list[np.ndarray]]:
    """Five strings of 8 bits, one of them shown again with half of its bits hidden; redrawn until only it fits."""
    while True:
        strings = random.choice([-1.0, 1.0], (STRINGS, STRING_BITS))
        masked = strings[0] * random.permutation([0.0, 1.0] * (STRING_BITS // 2))
        if ((strings @ masked) == np.abs(masked).sum()).sum() == 1:
            order = random.permutation(STRINGS)
            return bit_memory(strings[order], masked), [fill_cell(strings[0], STRING_BITS, "out")]


def listops_example(random: np.random.Generator) -> tuple[SubleqProgram, list[int]]:
    """A short expression, at most two operators deep, and its value."""
    tree = _expression(random, depth=2)
    return listops(_text(tree)), [evaluate(tree)]


def _expression(random: np.random.Generator, depth: int) -> Expression:
    if depth == 0:
        return int(random.integers(10))
    operator = str(random.choice(OPERATORS))
    depths = random.integers(0, depth, size=random.integers(2, 5))
    return operator, [_expression(random, int(below)) for below in depths]


def _text(tree: Expression) -> str:
    return str(tree) if isinstance(tree, int) else f"[{tree[0]} {' '.join(map(_text, tree[1]))} ]"


def _row(
    name: str, kind: str, machine: SubleqMachine | FleqMachine, run: Run[Any], *, correct: bool, error: float
) -> dict[str, Any]:
    shapes, columns, width = layer_shapes(machine.network), machine.sizes.columns, machine.layout.width
    steps = max(run.steps)
    return {
        "name": name,
        "kind": kind,
        "machine": "subleq" if isinstance(machine, SubleqMachine) else "fleq",
        "correct": correct,
        "accuracy": float(correct),
        "examples": 1,
        "steps": steps,
        "layers": len(shapes),
        "width": width,
        "columns": columns,
        "dtype": name_of(machine.dtype),
        "largest_error": float(f"{error:.1e}"),
        "flops_per_example": _rounded_mean(run.steps) * pass_flops(columns, width, shapes),
    }


def _rounded_mean(steps: Sequence[int]) -> int:
    return round(sum(steps) / len(steps))
