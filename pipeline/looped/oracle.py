"""What a program means, in plain Python: the definition that the network is tested against."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from pipeline.looped.isa import Cell, FleqProgram, ProgramError, SubleqProgram

M = TypeVar("M")


@dataclass(frozen=True)
class Outcome(Generic[M]):
    """Memory and program counter when a run ended, the instructions executed before HALT, and whether it got there."""

    memory: list[M]
    counter: int
    steps: int
    halted: bool


def wrap(value: int, bits: int) -> int:
    """`value` modulo 2^bits, as a two's complement word."""
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def subleq_states(program: SubleqProgram) -> Iterator[tuple[int, list[int]]]:
    """The program counter and the memory before each instruction, without end: HALT repeats."""
    memory, counter = list(program.memory), 0
    while True:
        yield counter, list(memory)
        instruction = program.code[counter]
        result = wrap(memory[instruction.b] - memory[instruction.a], program.word_bits)
        memory[instruction.b] = result
        counter = instruction.target if result <= 0 else counter + 1


def run_subleq(program: SubleqProgram, max_steps: int) -> Outcome[int]:
    """Run until HALT, at most `max_steps` instructions."""
    return _run(subleq_states(program), program.halt, max_steps)


def apply(op: str, a: Cell, b: Cell, memory: list[Cell]) -> Cell:
    """FLEQ's functions on (size, size) cells.

    `mm` is a^T b; `step` is 1 where a > 0 and `nstep` its complement; `gate` keeps a where b is 0 (so its mask comes
    from `nstep`, which is exact); `load` reads the cell whose number is a[0, 0].

    Raises:
        ProgramError: `load` from a number that is no cell.
    """
    if op == "load":
        address = round(float(a[0, 0]))
        if not 0 <= address < len(memory):
            raise ProgramError(f"load from cell {address}, memory has {len(memory)}", mend="check the pointer")
        return memory[address]
    functions: dict[str, Callable[[], Cell]] = {
        "mov": lambda: a,
        "add": lambda: a + b,
        "sub": lambda: a - b,
        "relu": lambda: np.maximum(a, 0.0),
        "step": lambda: (a > 0).astype(np.float64),
        "nstep": lambda: (a <= 0).astype(np.float64),
        "gate": lambda: np.where(b == 0, a, 0.0),
        "mm": lambda: a.T @ b,
        "tr": lambda: a.T.copy(),
    }
    return functions[op]()


def fleq_states(program: FleqProgram) -> Iterator[tuple[int, list[Cell]]]:
    """The program counter and the memory before each instruction, without end: HALT repeats.

    The flag is tested after the write, and an integer in it is meant: between 0 and 1 the network interpolates.
    """
    memory, counter = [cell.copy() for cell in program.memory], 0
    while True:
        yield counter, [cell.copy() for cell in memory]
        line = program.code[counter]
        memory[line.c] = apply(line.op, memory[line.a], memory[line.b], memory)
        counter = line.target if memory[line.flag][0, 0] <= 0.25 else counter + 1


def run_fleq(program: FleqProgram, max_steps: int) -> Outcome[Cell]:
    """Run until HALT in float64, at most `max_steps` instructions."""
    return _run(fleq_states(program), program.halt, max_steps)


def _run(states: Iterator[tuple[int, list[M]]], halt: int, max_steps: int) -> Outcome[M]:
    for steps, (counter, memory) in enumerate(states):
        if counter == halt or steps == max_steps:
            return Outcome(memory, counter, steps, counter == halt)
    raise AssertionError("states never end")
