"""The library's SUBLEQ programs over ranges of inputs, in the interpreter; the network follows it step by step."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.looped.isa import ProgramError, SubleqProgram
from pipeline.looped.library import program_files, read_program, subleq_program
from pipeline.looped.library.catalog import largest_error, subleq_cases
from pipeline.looped.library.fpt_tasks import bit_xor, recall
from pipeline.looped.library.listops import OPERATORS, Expression, evaluate, listops, parse
from pipeline.looped.library.lists import reverse, search, sort
from pipeline.looped.oracle import run_subleq
from pipeline.looped.subleq import SubleqMachine


def answer(program: SubleqProgram, *names: str, **inputs: int) -> tuple[int, ...]:
    loaded = program.with_values({name: [value] for name, value in inputs.items()})
    outcome = run_subleq(loaded, 50_000)
    assert outcome.halted
    return tuple(loaded.values(outcome.memory, name)[0] for name in names)


def test_multiply() -> None:
    program = subleq_program("multiply")
    for a, b in product(range(-6, 7), range(-6, 7)):
        assert answer(program, "product", a=a, b=b) == (a * b,)


def test_divide() -> None:
    program = subleq_program("divide")
    for a, b in product(range(30), range(1, 8)):
        assert answer(program, "quotient", "a", "error", a=a, b=b) == (a // b, a % b, 0)
    for a, b in ((-1, 3), (4, 0), (4, -2), (0, 0)):
        assert answer(program, "error", a=a, b=b) == (1,)


def test_square_root() -> None:
    program = subleq_program("square_root")
    for x in range(150):
        assert answer(program, "root", x=x) == (math.isqrt(x),)


def test_power() -> None:
    program = subleq_program("power")
    for base, exponent in product(range(-3, 4), range(5)):
        assert answer(program, "result", base=base, exponent=exponent) == (base**exponent,)


def test_compare_is_right_where_the_difference_overflows() -> None:
    program = replace(subleq_program("compare").with_values({"a": [0], "b": [0]}), word_bits=5)
    for a, b in product(range(-15, 16), range(-15, 16)):
        assert answer(program, "order", a=a, b=b) == ((a > b) - (a < b),)


def test_gcd() -> None:
    program = subleq_program("gcd")
    for a, b in product(range(16), range(16)):
        assert answer(program, "a", a=a, b=b) == (math.gcd(a, b),)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(-100, 100), min_size=1, max_size=7), st.integers(-100, 100))
def test_lists(values: list[int], target: int) -> None:
    turned, ordered, found = reverse(values, 9), sort(values, 9), search(values, target, 9)
    assert turned.values(run_subleq(turned, 9999).memory, "list") == values[::-1]
    assert ordered.values(run_subleq(ordered, 9999).memory, "list") == sorted(values)
    memory = run_subleq(found, 9999).memory
    present = target in values
    assert found.values(memory, "found") == [int(present)]
    assert found.values(memory, "index") == [values.index(target) if present else len(values)]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=8))
def test_bit_xor(bits: list[tuple[int, int]]) -> None:
    program = bit_xor([x for x, _ in bits], [y for _, y in bits])
    assert program.values(run_subleq(program, 999).memory, "out") == [x ^ y for x, y in bits]
    with pytest.raises(ProgramError, match="not bit strings of one length"):
        bit_xor([0, 1], [2, 0])


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(st.integers(-50, 50), st.integers(-50, 50), min_size=1, max_size=5), st.integers(-50, 50))
def test_recall(pairs: dict[int, int], other: int) -> None:
    for query in [*pairs, other]:
        program = recall(list(pairs.items()), query)
        assert program.values(run_subleq(program, 999).memory, "out") == [pairs.get(query, 0)]


def text_of(tree: Expression) -> str:
    return str(tree) if isinstance(tree, int) else f"[{tree[0]} {' '.join(map(text_of, tree[1]))} ]"


EXPRESSIONS = st.recursive(
    st.integers(0, 9),
    lambda inner: st.tuples(st.sampled_from(OPERATORS), st.lists(inner, min_size=1, max_size=5)),
    max_leaves=12,
)


@settings(max_examples=25, deadline=None)
@given(EXPRESSIONS)
def test_listops_programs_evaluate_their_expression(tree: Expression) -> None:
    assert parse(text_of(tree)) == tree
    program = listops(text_of(tree))
    outcome = run_subleq(program, 9999)
    assert outcome.halted
    assert program.values(outcome.memory, "out") == [evaluate(tree)]


def test_listops_by_hand() -> None:
    values = {"[MAX 2 9 [MIN 4 7 ] 0 ]": 9, "[MED 1 8 2]": 2, "[MED 1 8 2 5]": 3, "[SM 9 8 [SM 5 5]]": 7, "4": 4}
    assert {text: evaluate(parse(text)) for text in values} == values


@pytest.mark.parametrize("text", ["", "[MAX 1 2", "[AVG 1 2]", "[MAX ]", "12", "[MAX 1 x]", "1 2"])
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(ProgramError, match="to mend"):
        parse(text)


def test_every_case_is_solved_on_the_network() -> None:
    for name, case in subleq_cases().items():
        if name != "factorial_18":  # among the official faults already
            machine = SubleqMachine.for_programs([case.program])
            run = machine.run([case.program], fast=True)
            assert largest_error(case.program, run.memory()[0], case.answers) == 0, name


def test_largest_error_sees_a_wrong_answer() -> None:
    case = subleq_cases()["add"]
    assert largest_error(case.program, [25, -14, 0, 0], case.answers) == 1
    assert np.isclose(largest_error(case.program, [25, -115, 0, 0], case.answers), 100)


def test_every_file_assembles_and_says_what_it_does() -> None:
    for name, path in program_files().items():
        assert len(read_program(path).code) > 1, name
        assert path.read_text().startswith("; "), name
