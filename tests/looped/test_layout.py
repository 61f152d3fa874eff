"""Rows, columns, and the gadgets that work on them."""

from __future__ import annotations

import pytest
import torch

from pipeline.looped.assembler import assemble
from pipeline.looped.gadgets import OPEN, FeedForwardBuilder, increment
from pipeline.looped.isa import ProgramError
from pipeline.looped.layout import LatticeError, Layout, Sizes, from_bits, to_bits
from pipeline.looped.subleq import SubleqMachine

SMALL = ".word 8\n.data\nx: -128 5\n.code\nsubleq x x+1\n"


@pytest.mark.parametrize(("columns", "word", "width"), [(64, 8, 98), (4096, 16, 194), (12, 8, 78)])
def test_width_is_that_of_the_specification(columns: int, word: int, width: int) -> None:
    assert Layout(Sizes(columns // 2, columns - columns // 2 - 1, word)).width == width


def test_memory_and_counter_survive_encoding() -> None:
    program = assemble(SMALL)
    layout = Layout(Sizes(memory=6, code=9, word_bits=8))
    x = layout.encode([program], torch.float32)
    assert layout.memory(x).tolist() == [[-128, 5, 0, 0, 0, 0]]
    assert layout.counter(x).tolist() == [0]
    layout.check_lattice(x)


def test_bits_are_twos_complement() -> None:
    numbers = torch.arange(-32, 32)
    assert torch.equal(from_bits(to_bits(numbers, 6), signed=True), numbers)
    assert to_bits(torch.tensor(6), 4).tolist() == [-1, 1, 1, -1]


def test_programs_that_do_not_fit_are_refused() -> None:
    program = assemble(SMALL)
    with pytest.raises(ProgramError, match="3 memory cells, the machine holds 2"):
        SubleqMachine(Sizes(2, 9, 8)).encode([program])
    with pytest.raises(ProgramError, match="2 instructions, the machine holds 1"):
        SubleqMachine(Sizes(6, 1, 8)).encode([program])
    with pytest.raises(ProgramError, match="words have 8 bits, the machine's 9"):
        SubleqMachine(Sizes(6, 9, 9)).encode([program])
    with pytest.raises(ProgramError, match="no program to encode"):
        SubleqMachine(Sizes(6, 9, 8)).encode([])
    with pytest.raises(ProgramError, match="no program to size"):
        Sizes.of([])


@pytest.mark.parametrize("value", [0.5, 2.0, float("nan")])
def test_damaged_state_is_refused_with_its_place(value: float) -> None:
    layout = Layout(Sizes(4, 4, 8))
    x = layout.encode([assemble(SMALL)], torch.float32)
    x[0, 2, layout.rows["MEM"][3]] = value
    with pytest.raises(LatticeError, match=f"row MEM of column 2 in program 0 holds {value}"):
        layout.check_lattice(x)


def apply(ffn: FeedForwardBuilder, x: torch.Tensor) -> torch.Tensor:
    w1, b1, w2 = ffn.build()
    return x + torch.relu(x @ w1.T + b1) @ w2.T


def test_sign_takes_errors_below_one_half_and_stair_below_one_quarter() -> None:
    ffn = FeedForwardBuilder(3)
    ffn.sign({0: 1.0}, 1)
    ffn.stair({0: 1.0}, 2)
    x = torch.zeros(6, 3, dtype=torch.float64)
    x[:, 0] = torch.tensor([-1.4, -0.51, 0.51, 1.4, 0.24, -0.24])
    y = apply(ffn, x)
    assert y[:4, 1].tolist() == [-1, -1, 1, 1]
    assert y[:, 2].tolist() == [-1, -1, 1, 1, 0, 0]


def test_clear_is_exact_and_a_shut_gate_keeps_still() -> None:
    ffn = FeedForwardBuilder(3)
    ffn.clear([0])
    ffn.add({1: 1.0}, {2: 1.0}, OPEN)
    x = torch.tensor([[0.1, 0.3, 0.0], [-1e30, -7.7, 0.0]], dtype=torch.float64)
    y = apply(ffn, x)
    assert y[:, 0].tolist() == [0, 0]
    assert y[:, 2].tolist() == [0.3, -7.7]


def test_at_least_tolerates_a_quarter() -> None:
    ffn = FeedForwardBuilder(3)
    ffn.at_least({0: 1.0}, 2.0, {2: 1.0}, one=1)
    x = torch.ones(6, 3, dtype=torch.float64)
    x[:, 0], x[:, 2] = torch.tensor([-3, 1, 1.24, 1.76, 2, 9]), 0
    assert apply(ffn, x)[:, 2].tolist() == [0, 0, 0, 1, 1, 1]


def test_increment_counts_through_every_number() -> None:
    ffn = FeedForwardBuilder(9)
    increment(ffn, range(4), range(4, 8), one=8)
    x = torch.ones(16, 9, dtype=torch.float64)
    x[:, :4], x[:, 4:8] = to_bits(torch.arange(16), 4), 0
    assert from_bits(apply(ffn, x)[:, 4:8].float(), signed=False).tolist() == [*range(1, 16), 0]
