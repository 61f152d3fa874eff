"""Every fault found in the paper's official code, with the value that is right."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pipeline.looped.assembler import assemble
from pipeline.looped.isa import ProgramError
from pipeline.looped.layout import Sizes
from pipeline.looped.library import fleq_program, subleq_program
from pipeline.looped.library.lists import reverse, search
from pipeline.looped.runs import NotHalted
from pipeline.looped.subleq import SubleqMachine
from tests.looped.test_subleq import MULTIPLY

pytestmark = pytest.mark.usefixtures("_no_shape_checks")

NO_END = ".word 8\n.data\nx: 20\none: 1\n.code\nsubleq one x\nsubleq one x\nsubleq one x\n"


def run_at(program, scale: float = 30.0):
    return SubleqMachine(Sizes.of([program]), scale=scale).run([program], fast=False)


@pytest.mark.parametrize("items", [25, 26])
def test_1_a_hundred_columns_and_more_at_lambda_100_are_finite(items: int) -> None:
    run = run_at(reverse(list(range(items)), 8), scale=100.0)
    assert run.values("list") == list(range(items))[::-1]
    assert bool(torch.isfinite(run.loop.state).all())


def test_1_linear_search_in_more_than_128_columns() -> None:
    run = run_at(search(list(range(15)), 7, 8), scale=100.0)
    assert run.loop.state.shape[1] > 128
    assert (run.values("found"), run.values("index")) == ([1], [7])


def test_2_factorial_of_zero_is_one() -> None:
    assert run_at(subleq_program("factorial").with_values({"n": [0]})).values("result") == [1]


def test_3_factorial_of_18_needs_55_bits() -> None:
    program = subleq_program("factorial", 55).with_values({"n": [18]})
    assert SubleqMachine.for_programs([program]).run([program], fast=True).values("result") == [6402373705728000]


@pytest.mark.parametrize("columns", [14, 20, 24, 33])
def test_4_any_number_of_columns(columns: int) -> None:
    program = assemble(MULTIPLY)
    machine = SubleqMachine(Sizes(memory=columns - 8, code=7, word_bits=8))
    assert machine.sizes.columns == columns
    assert machine.run([program]).values("acc") == [63]


@pytest.mark.parametrize("extra", range(8))
def test_5_a_program_stops_at_its_end(extra: int) -> None:
    program = assemble(NO_END)
    run = SubleqMachine(Sizes(memory=3 + extra, code=4, word_bits=8)).run([program], max_steps=50)
    assert (run.values("x"), run.steps) == ([17], [3])


@pytest.mark.parametrize("loops", [20, 40])
def test_5_too_few_loops_give_no_result(loops: int) -> None:
    program = subleq_program("factorial").with_values({"n": [6]})
    machine = SubleqMachine.for_programs([program])
    run = machine.run([program], max_steps=loops)
    assert run.status == ["step limit"]
    with pytest.raises(NotHalted, match=f"has not halted after {loops} steps"):
        run.values("result")
    assert machine.run([program]).values("result") == [720]


def test_6_weights_stay_and_fixed_thresholds_correct_a_disturbed_memory() -> None:
    program = assemble(MULTIPLY)
    machine = SubleqMachine.for_programs([program])
    before = {name: value.clone() for name, value in machine.network.state_dict().items()}
    x = machine.encode([program])
    noise = torch.empty_like(x).uniform_(-0.2, 0.2, generator=torch.Generator().manual_seed(0))
    memory = x[:, 1 : 1 + machine.sizes.memory, machine.layout.rows.cut("MEM")]
    memory += noise[:, 1 : 1 + machine.sizes.memory, machine.layout.rows.cut("MEM")]
    with torch.inference_mode():
        x = machine.network(x)
    machine.layout.check_lattice(x, tolerance=1e-6)
    assert machine.layout.memory(x)[0].tolist() == [7, 9, 0, -7, 1, 0]
    assert all(torch.equal(value, before[name]) for name, value in machine.network.state_dict().items())


def test_7_one_bias_serves_all_columns() -> None:
    machine = SubleqMachine(Sizes(9, 9, 8))
    for block in machine.network.layers:
        assert block.b1.shape == (block.w1.shape[0],)


def test_8_every_word_of_the_range_is_legal_and_no_other() -> None:
    text = ".word 8\n.data\nx: {}\n.code\nhalt\n"
    for word in (-128, 127):
        program = assemble(text.format(word))
        assert run_at(program).values("x") == [word]
    for word in (128, -129):
        with pytest.raises(ProgramError, match=f"{word} is outside -128 … 127"):
            assemble(text.format(0)).with_values({"x": [word]})


def test_8_large_targets_and_zeros_are_legal_inputs() -> None:
    run = run_at(search([50], 100, 8))
    assert (run.values("found"), run.values("index")) == ([0], [1])
    assert run_at(reverse([0, 0, 0], 8)).values("list") == [0, 0, 0]


def test_9_a_pointer_walks_a_list_with_code_that_does_not_grow() -> None:
    from pipeline.looped.fleq import FleqMachine

    program = fleq_program("list_sum")
    run = FleqMachine.for_programs([program]).run([program])
    assert run.values("sum")[0][0, 0] == 3 + 1 + 4 + 1 + 5 + 9 + 2 + 6
    assert len(program.code) == 6


def test_11_a_run_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_at(assemble(MULTIPLY))
    assert list(tmp_path.iterdir()) == []


def test_surrounding_facts_that_the_official_code_gets_right() -> None:
    """Wrap-around at -2^(N-1), and a branch on the wrapped value."""
    text = ".word 8\n.data\na: {}\nb: {}\njumped: 1\n.code\nsubleq a b yes\nhalt\nyes: subleq jumped jumped\n"
    for a, b, result, jumped in ((1, -128, 127, 1), (-100, 100, -56, 0), (-128, -128, 0, 0), (-128, 0, -128, 0)):
        run = run_at(assemble(text.format(a, b)))
        assert (run.values("b"), run.values("jumped")) == ([result], [jumped])
