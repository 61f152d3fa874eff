"""The FLEQ machine: every function block against its definition, the library against known answers, the accuracy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pipeline.looped.fleq import FleqMachine, require_range
from pipeline.looped.fleq_assembler import assemble_fleq
from pipeline.looped.fleq_layout import LARGEST, FleqSizes
from pipeline.looped.isa import OPERATIONS, UNARY, FleqProgram, ProgramError
from pipeline.looped.library import fleq_program
from pipeline.looped.library.catalog import fleq_cases, inverse_case, largest_error
from pipeline.looped.library.fpt_tasks import associative_recall
from pipeline.looped.numerics import PrecisionError
from pipeline.looped.oracle import run_fleq
from pipeline.looped.runs import NotHalted
from pipeline.looped.standard_module import StandardTransformer

DTYPES = [torch.float64, torch.float32]
CASES = fleq_cases()
EXACT = [op for op in OPERATIONS if op != "mm"]


def one_operation(op: str) -> FleqProgram:
    operands = "a c" if op in UNARY else "a b c"
    return assemble_fleq(f".cells 3\n.data\na: 0\nb: 0\nc: 0\n.code\n{op} {operands}\n")


def operands(op: str, seed: int, unit: float = 2.0**-8) -> dict[str, list[np.ndarray]]:
    """Values that float32 holds exactly, with zeros and both signs; a mask for `gate`, a cell number for `load`."""
    random = np.random.default_rng(seed)
    a = random.integers(-(2**16), 2**16, (3, 3)) * unit * random.integers(0, 2, (3, 3))
    b = random.integers(-(2**16), 2**16, (3, 3)) * unit
    if op == "gate":
        b = random.integers(0, 2, (3, 3)).astype(np.float64)
    if op == "load":
        a = np.array([float(random.integers(0, 4))])
    return {"a": [a], "b": [b]}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", EXACT)
def test_exact_operations_equal_their_definition_bit_for_bit(op: str, dtype: torch.dtype) -> None:
    units = [2.0**-8, LARGEST[dtype] / 2**17]  # up to the largest sum, where the product's heads have saturated
    programs = [one_operation(op).with_values(operands(op, seed, unit)) for seed in range(8) for unit in units]
    run = FleqMachine.for_programs(programs, dtype).run(programs)
    for program, memory in zip(programs, run.memory(), strict=True):
        for found, expected in zip(memory, run_fleq(program, 9).memory, strict=True):
            assert np.array_equal(found, expected)


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_matrix_product_has_the_stated_accuracy(dtype: torch.dtype, limit: float) -> None:
    """Random 4 x 4 operands whose product reaches 5.8, where two heads reach 2e-9 and 2e-4."""
    random = np.random.default_rng(1)
    programs, products = [], []
    for _ in range(32):
        a, b = random.normal(size=(2, 4, 4))
        b *= 5.8 / np.abs(a @ b).max()
        programs.append(fleq_program("matrix_product").with_values({"a": [a], "b": [b]}))
        products.append(a @ b)
    run = FleqMachine.for_programs(programs, dtype).run(programs)
    errors = [np.abs(run.programs[i].values(m, "c")[0] - products[i]).max() for i, m in enumerate(run.memory())]
    assert max(errors) <= limit


@pytest.mark.usefixtures("_no_shape_checks")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [name for name in CASES if name != "power_iteration"])
def test_library_program_reaches_the_known_answer_in_the_interpreters_steps(name: str, dtype: torch.dtype) -> None:
    case = CASES[name]
    run = FleqMachine.for_programs([case.program], dtype).run([case.program])
    expected = run_fleq(case.program, 10_000)
    assert run.steps == [expected.steps]
    assert largest_error(case.program, run.memory()[0], case.answers) <= case.tolerance[dtype == torch.float32]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_power_iteration_finds_the_eigenvector(dtype: torch.dtype) -> None:
    case = CASES["power_iteration"]
    run = FleqMachine.for_programs([case.program], dtype).run([case.program])
    assert largest_error(case.program, run.memory()[0], case.answers) <= case.tolerance[dtype == torch.float32]


@pytest.mark.parametrize(
    ("name", "instructions", "steps"),
    [
        ("matrix_product", 3, 2),
        ("divide", 7, 40),
        ("square_root", 9, 70),
        ("inverse", 10, 141),
        ("sgd_linear", 7, 6),
        ("sgd_two_layers", 18, 17),
        ("associative_recall", 6, 5),
        ("list_sum", 6, 39),
    ],
)
def test_programs_have_the_specifications_size_and_steps(name: str, instructions: int, steps: int) -> None:
    program = fleq_program(name)
    assert (len(program.code), run_fleq(program, 10_000).steps) == (instructions, steps)


def test_power_iteration_agrees_with_numpy_in_the_interpreter() -> None:
    case = CASES["power_iteration"]
    outcome = run_fleq(case.program, 10_000)
    assert outcome.halted
    assert largest_error(case.program, outcome.memory, case.answers) <= 1e-7


@pytest.mark.usefixtures("_no_shape_checks")
def test_inverse_times_matrix_is_the_identity() -> None:
    a = np.random.default_rng(4).normal(size=(4, 4)) + 3 * np.eye(4)
    case = inverse_case(a)
    run = FleqMachine.for_programs([case.program]).run([case.program])
    np.testing.assert_allclose(a @ run.values("x")[0], np.eye(4), atol=1e-8)


def test_sgd_step_has_the_specifications_weights() -> None:
    program = fleq_program("sgd_linear")
    run = FleqMachine.for_programs([program]).run([program])
    np.testing.assert_allclose(run.values("w")[0][:, 0], [0.9, 0.55, 0.6, 0.2], atol=2e-9)


def test_two_layer_step_equals_autograd() -> None:
    program = fleq_program("sgd_two_layers")
    w, v, x, t = (torch.from_numpy(program.values(program.memory, name)[0]) for name in ("W", "v", "x", "t"))
    w.requires_grad_(), v.requires_grad_()
    (0.5 * (v[:, 0] @ torch.relu(w @ x[:, 0]) - t[0, 0]) ** 2).backward()
    run = FleqMachine.for_programs([program]).run([program])
    for name, parameter in (("W", w), ("v", v)):
        assert parameter.grad is not None
        stepped = (parameter - 0.1 * parameter.grad).detach().numpy()
        np.testing.assert_allclose(run.values(name)[0], stepped, atol=1e-8)


@pytest.mark.parametrize("dtype", DTYPES)
def test_associative_recall_finds_each_of_eight_pairs(dtype: torch.dtype) -> None:
    random = np.random.default_rng(7)
    keys = np.array([[1 if (i >> bit) & 1 else -1 for i in random.permutation(256)[:8]] for bit in range(8)])
    values = random.choice([-1, 1], (8, 8))
    programs = [associative_recall(keys, values, keys[:, i]) for i in range(8)]
    run = FleqMachine.for_programs(programs, dtype).run(programs)
    found = np.stack([run.values("out", i)[0][:, 0] for i in range(8)], axis=1)
    assert np.array_equal(np.sign(found), values)
    assert run.steps == [5] * 8


def test_layers_heads_and_weights_do_not_depend_on_the_program() -> None:
    first, second = (one_operation(op).with_values(operands(op, 1)) for op in ("mov", "sub"))
    sizes = FleqSizes.of([first, second])
    machine, other = FleqMachine(sizes), FleqMachine(sizes)
    before = {name: value.clone() for name, value in machine.network.state_dict().items()}
    together = machine.run([first, second])
    assert all(torch.equal(value, before[name]) for name, value in machine.network.state_dict().items())
    assert all(torch.equal(value, before[name]) for name, value in other.network.state_dict().items())
    for index, program in enumerate((first, second)):
        (alone,) = machine.run([program]).memory()
        assert all(np.array_equal(x, y) for x, y in zip(alone, together.memory()[index], strict=True))
    assert len(machine.network.layers) == 7
    assert (
        max(block.heads for block in machine.network.layers) == 3 + 5
    )  # D for the transpose, 4 for the product, 1 for the load


def test_state_is_unchanged_after_halt() -> None:
    program = fleq_program("matrix_product")
    machine = FleqMachine.for_programs([program])
    with torch.inference_mode():
        x = state = machine.network(machine.run([program]).loop.state)
        for _ in range(50):
            x = machine.network(x)
    assert torch.equal(x, state)


def test_standard_modules_compute_the_same_states() -> None:
    program = fleq_program("sgd_linear")
    machine = FleqMachine.for_programs([program])
    standard = StandardTransformer(machine.network)
    x = y = machine.encode([program])
    with torch.inference_mode():
        for _ in range(7):
            x, y = machine.network(x), standard(y)
    assert float((y - x).abs().max()) < 1e-8


def test_a_program_that_never_halts_has_no_result() -> None:
    endless = assemble_fleq(".cells 2\n.data\na: 1\n.code\nself: jmp self\n")
    run = FleqMachine.for_programs([endless]).run([endless], max_steps=9)
    assert run.status == ["step limit"]
    with pytest.raises(NotHalted, match="has not halted after 9 steps"):
        run.values("a")


def test_programs_that_do_not_fit_are_refused() -> None:
    program = one_operation("mov")
    with pytest.raises(ProgramError, match=r"4 cells and 2 instructions(.|\n)*the machine holds 3 and 2"):
        FleqMachine(FleqSizes(3, 3, 2)).encode([program])
    with pytest.raises(ProgramError, match="cells have size 3, the machine's 4"):
        FleqMachine(FleqSizes(4, 4, 2)).encode([program])


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_beyond_the_range_are_refused_before_and_during_a_run(dtype: torch.dtype) -> None:
    limit = LARGEST[dtype]
    program = assemble_fleq(f".cells 2\n.data\na: {limit}\nb: 0\n.code\nadd a a b\nsub a a b\n")
    machine = FleqMachine.for_programs([program], dtype)
    with pytest.raises(PrecisionError, match=r"program 1 came to hold .*; the machine computes up to"):
        machine.run([program.with_values({"a": [np.array(1.0)]}), program])
    for large in (limit + 1, -1e300):
        with pytest.raises(ProgramError, match=r"is beyond .*, the largest a cell holds"):
            machine.encode([program.with_values({"a": [np.array(large)]})])


def test_a_value_that_is_no_number_is_refused() -> None:
    with pytest.raises(PrecisionError, match="program 0 came to hold nan"):
        require_range(torch.tensor([float("nan")]), torch.float64)


def test_interpreter_refuses_a_pointer_to_no_cell() -> None:
    program = one_operation("load").with_values({"a": [np.array([9.0])]})
    with pytest.raises(ProgramError, match="load from cell 9, memory has 4"):
        run_fleq(program, 5)
