"""What the network does, loop by loop, decoded from its state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipeline.looped.fleq import FleqMachine
from pipeline.looped.isa import UNARY, ZERO, Cell, Fleq, FleqProgram, Subleq, SubleqProgram, Symbol
from pipeline.looped.subleq import SubleqMachine

SHOWN = 1e-6
"""Rows and columns at the end of a matrix are printed if they hold anything larger."""


@dataclass(frozen=True)
class Moment:
    """The state before one instruction: how many went before, the program counter, and the memory."""

    step: int
    counter: int
    memory: list[Any]
    state: Tensor


def machine_for(program: SubleqProgram | FleqProgram, dtype: torch.dtype | None = None) -> SubleqMachine | FleqMachine:
    """The smallest machine for a program; SUBLEQ in float32 and FLEQ in float64 if not said otherwise."""
    if isinstance(program, SubleqProgram):
        return SubleqMachine.for_programs([program], dtype or torch.float32)
    return FleqMachine.for_programs([program], dtype or torch.float64)


def trace(
    machine: SubleqMachine | FleqMachine, program: SubleqProgram | FleqProgram, max_steps: int
) -> Iterator[Moment]:
    """Every moment of a run, from the start to the first one at HALT, or after `max_steps` instructions.

    Raises:
        LatticeError: a SUBLEQ state that is not made of -1, 0 and +1.
    """
    with torch.inference_mode():
        x = machine.encode([program])  # type: ignore[list-item]  # machine_for pairs them
        for step in range(max_steps + 1):
            if isinstance(machine, SubleqMachine):
                machine.layout.check_lattice(x)
                memory = machine.layout.memory(x)[0].tolist()
            else:
                memory = machine.layout.memory(x)[0]
            counter = int(machine.layout.counter(x)[0])
            yield Moment(step, counter, memory, x)
            if counter == program.halt:
                return
            x = machine.network(x)


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
