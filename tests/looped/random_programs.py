"""Random programs, and the network held against the interpreter after every instruction."""

from __future__ import annotations

import random
from itertools import islice

import torch

from pipeline.looped.isa import Subleq, SubleqProgram, Symbol
from pipeline.looped.oracle import subleq_states
from pipeline.looped.subleq import SubleqMachine


def random_program(rng: random.Random, cells: int, code: int, word_bits: int) -> SubleqProgram:
    """Random operands, targets and words; biased words, so that both branches are taken."""
    low, high = -(1 << word_bits - 1), (1 << word_bits - 1) - 1
    edge = [low, high, 0, 1, -1]
    memory = [rng.choice(edge) if rng.random() < 0.3 else rng.randint(low, high) for _ in range(cells)]
    lines = [Subleq(rng.randrange(cells), rng.randrange(cells), rng.randrange(code)) for _ in range(code - 1)]
    lines.append(Subleq(cells, cells, code - 1))
    return SubleqProgram((*memory, 0), tuple(lines), word_bits, {"Z": Symbol(cells, 1)}, {})


def assert_follows_interpreter(machine: SubleqMachine, programs: list[SubleqProgram], steps: int) -> None:
    """Memory and program counter of every program, after every instruction, and a state on the lattice."""
    expected = [list(islice(subleq_states(program), steps + 1)) for program in programs]
    with torch.inference_mode():
        x = machine.encode(programs)
        for step in range(steps + 1):
            counters, memories = zip(*(states[step] for states in expected), strict=True)
            assert machine.layout.counter(x).tolist() == list(counters), f"counter after {step} steps"
            found = [row[: len(m)] for row, m in zip(machine.layout.memory(x).tolist(), memories, strict=True)]
            assert found == list(memories), f"memory after {step} steps"
            x = machine.network(x)
        machine.layout.check_lattice(x)
