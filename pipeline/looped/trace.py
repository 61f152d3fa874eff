"""What the network does, loop by loop, decoded from its state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipeline.looped.fast_path import FastPath
from pipeline.looped.fleq import FleqMachine, require_range
from pipeline.looped.fleq_layout import FleqSizes
from pipeline.looped.isa import UNARY, ZERO, Cell, Fleq, FleqProgram, ProgramError, Subleq, SubleqProgram, Symbol
from pipeline.looped.oracle import run_fleq, wrap
from pipeline.looped.subleq import SubleqMachine

SHOWN = 1e-6
"""Rows and columns at the end of a matrix are printed if they hold anything larger."""


DENSE_COLUMNS = 2048
"""Up to here every column asks in every head, n^2 scores; beyond, SUBLEQ runs on the fast path and FLEQ is refused."""


@dataclass(frozen=True)
class Moment:
    """Before one instruction: how many went before, the program counter, and the memory."""

    step: int
    counter: int
    memory: list[Any]


def machine_for(program: SubleqProgram | FleqProgram, dtype: torch.dtype | None = None) -> SubleqMachine | FleqMachine:
    """The smallest machine for a program; SUBLEQ in float32 and FLEQ in float64 if not said otherwise.

    Raises:
        ProgramError: a FLEQ program of more columns than its n^2 scores allow.
        PrecisionError: the dtype cannot hold it.
    """
    if isinstance(program, SubleqProgram):
        return SubleqMachine.for_programs([program], dtype or torch.float32)
    columns = FleqSizes.of([program]).columns
    if columns > DENSE_COLUMNS:
        raise ProgramError(f"the program takes {columns} columns, of {DENSE_COLUMNS} here", mend="make it shorter")
    return FleqMachine.for_programs([program], dtype or torch.float64)


def trace(
    machine: SubleqMachine | FleqMachine, program: SubleqProgram | FleqProgram, max_steps: int
) -> Iterator[tuple[Moment, Tensor]]:
    """Every moment of a run with its state, from the start to the first at HALT, or after `max_steps` instructions.

    Raises:
        LatticeError: a SUBLEQ state that is not made of -1, 0 and +1.
        PrecisionError: a FLEQ value beyond the range that the machine computes in.
    """
    for step, x in enumerate(islice(_states(machine, program), max_steps + 1)):
        if isinstance(machine, SubleqMachine):
            machine.layout.check_lattice(x)
            memory = machine.layout.memory(x)[0].tolist()
        else:
            require_range(machine.layout.magnitude(x), machine.dtype)
            memory = machine.layout.memory(x)[0]
        counter = int(machine.layout.counter(x)[0])
        yield Moment(step, counter, memory), x
        if counter == program.halt:
            return


@torch.inference_mode()
def _states(machine: SubleqMachine | FleqMachine, program: Any) -> Iterator[Tensor]:
    """The state before each instruction, without end."""
    x = machine.encode([program])
    if isinstance(machine, SubleqMachine) and machine.sizes.columns > DENSE_COLUMNS:
        path = FastPath(machine.network, machine.layout, machine.scale)
        parts = path.split(x)
        while True:
            yield path.join(x, parts)
            parts = path.step(parts)
    while True:
        yield x
        x = machine.network(x)


def difference_from_interpreter(program: FleqProgram, last: Moment) -> float:
    """How far a FLEQ run's end is from the interpreter's: the largest |difference| / max(1, |value|) of a cell.

    Infinite if the interpreter has not halted after as many steps.

    Raises:
        ProgramError: the program itself is at fault, e.g. a pointer to no cell.
    """
    expected = run_fleq(program, last.step + 1)
    if not expected.halted or expected.steps != last.step:
        return float("inf")
    pairs = zip(last.memory, expected.memory, strict=False)  # memory of the machine may be larger
    return max(float((np.abs(found - wanted) / np.maximum(1.0, np.abs(wanted))).max()) for found, wanted in pairs)


def wraps(program: SubleqProgram, before: Moment) -> bool:
    """Whether the instruction at a moment has a result outside its words, which wraps around."""
    line = program.code[before.counter]
    result = before.memory[line.b] - before.memory[line.a]
    return result != wrap(result, program.word_bits)


def cell_name(symbols: Mapping[str, Symbol], cell: int) -> str:
    """`list+2` for the third cell of `list`."""
    for name, symbol in symbols.items():
        if 0 <= cell - symbol.start < symbol.length:
            return name if symbol.length == 1 else f"{name}+{cell - symbol.start}"
    return f"cell {cell}"


def line_text(program: SubleqProgram | FleqProgram, index: int) -> str:
    """An instruction as text, with the names of its cells and, of its target, the label or number."""
    line = program.code[index]
    labels = {target: label for label, target in program.labels.items()}
    target = labels.get(line.target, str(line.target))
    jumps = "" if line.target == index + 1 else f" -> {target}"
    if index == program.halt:
        return "HALT"
    if isinstance(line, Subleq):
        if line.a == line.b == program.symbols[ZERO].start:
            return f"jmp{jumps}"
        return f"subleq {cell_name(program.symbols, line.a)} {cell_name(program.symbols, line.b)}{jumps}"
    return _fleq_text(program.symbols, line, jumps)


def _fleq_text(symbols: Mapping[str, Symbol], line: Fleq, jumps: str) -> str:
    a, b, c, flag = (cell_name(symbols, cell) for cell in (line.a, line.b, line.c, line.flag))
    if c == ZERO:
        return f"jmp{jumps}"
    operands = f"{a} {c}" if line.op in UNARY else f"{a} {b} {c}"
    return f"{line.op} {operands}" + (f" if {flag} <= 0{jumps}" if jumps else "")


def value_text(values: list[Any]) -> str:
    """The cells of one name: integers apart by spaces; a matrix without its empty rows and columns, rows apart by /."""
    return " ".join(f"[{_cell_text(v)}]" if isinstance(v, np.ndarray) and len(values) > 1 else _one(v) for v in values)


def _one(value: Any) -> str:
    return _cell_text(value) if isinstance(value, np.ndarray) else str(value)


def _cell_text(cell: Cell) -> str:
    used = np.argwhere(np.abs(cell) > SHOWN)
    height, width = used.max(axis=0) + 1 if len(used) else (1, 1)
    rows = [" ".join(f"{value:.7g}" for value in row) for row in cell[:height, :width]]
    return (" " if width == 1 else " / ").join(rows)


def table(program: SubleqProgram | FleqProgram, moments: list[Moment]) -> str:
    """A trace as text: one line a loop, one column a name in the data."""
    names = [name for name in program.symbols if name != ZERO]
    lines = [["loop", "pc", "next instruction", *names]]
    for moment in moments:
        values = [value_text(program.values(moment.memory, name)) for name in names]
        lines.append([str(moment.step), str(moment.counter), line_text(program, moment.counter), *values])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(size) for cell, size in zip(line, widths, strict=True)).rstrip() for line in lines
    )
