"""The SUBLEQ machine against its definition: every pair of small words, random programs, batches, endless loops."""

from __future__ import annotations

import random
from functools import cache
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import PermafrostError
from pipeline.looped.assembler import assemble
from pipeline.looped.cuda_graph import GraphedStep
from pipeline.looped.fast_path import FastPath
from pipeline.looped.isa import SubleqProgram
from pipeline.looped.layout import Sizes
from pipeline.looped.oracle import run_subleq, wrap
from pipeline.looped.runs import NotHalted
from pipeline.looped.standard_module import StandardTransformer
from pipeline.looped.subleq import SubleqMachine
from tests.looped.random_programs import assert_follows_interpreter, random_program

pytestmark = pytest.mark.usefixtures("_no_shape_checks")

MULTIPLY = """
.word 8
.data
a: 7
b: 9
acc: 0
t: 0
one: 1
.code
      subleq a t
loop: subleq t acc
      subleq one b HALT
      jmp loop
"""
PAIR = ".data\na: {a}\nb: {b}\nbranched: 0\none: 1\n.code\nsubleq a b yes\nhalt\nyes: subleq one branched\n"


def pairs(bits: int) -> list[tuple[int, int]]:
    words = range(-(1 << bits - 1), 1 << bits - 1)
    return list(product(words, words))


@cache
def pair_programs(bits: int) -> list[SubleqProgram]:
    template = assemble(PAIR.format(a=0, b=0), word_bits=bits)
    return [template.with_values({"a": [a], "b": [b]}) for a, b in pairs(bits)]


def assert_subtracts(machine: SubleqMachine, bits: int) -> None:
    programs = pair_programs(bits)
    run = machine.run(programs, max_steps=5, fast=True)
    for (a, b), program, memory in zip(pairs(bits), programs, run.memory(), strict=True):
        difference = wrap(b - a, bits)
        assert program.values(memory, "b") == [difference]
        assert program.values(memory, "branched") == [-1 if difference <= 0 else 0]


@pytest.mark.parametrize(
    ("bits", "chunk", "dtype"),
    [
        *product([5], [None, 2, 3], [torch.float32]),
        *product([6], [None, 2, 3, 5], [torch.float32]),
        *product([5], [2, 3], [torch.bfloat16]),
    ],
)
def test_every_pair_of_words_is_subtracted_and_branched_on(bits: int, chunk: int | None, dtype: torch.dtype) -> None:
    sizes = Sizes.of([assemble(PAIR.format(a=0, b=0), word_bits=bits)])
    assert_subtracts(SubleqMachine(sizes, dtype, chunk_bits=chunk), bits)


@pytest.mark.parametrize(
    ("dtype", "bits", "chunk", "depth"),
    [
        (torch.float32, 21, None, 4),
        (torch.float64, 50, None, 4),
        (torch.float16, 8, None, 4),
        (torch.bfloat16, 5, None, 4),
        (torch.float32, 32, 16, 5),
        (torch.float32, 48, 16, 6),
        (torch.float32, 62, 16, 7),
        (torch.float64, 62, 31, 5),
        (torch.bfloat16, 12, 3, 7),
    ],
)
def test_widest_words_of_each_dtype_follow_the_interpreter(
    dtype: torch.dtype, bits: int, chunk: int | None, depth: int
) -> None:
    rng = random.Random(bits)
    programs = [random_program(rng, cells=5, code=9, word_bits=bits) for _ in range(10)]
    machine = SubleqMachine(Sizes.of(programs), dtype, chunk_bits=chunk)
    assert len(machine.network.layers) == depth
    assert_follows_interpreter(machine, programs, steps=16)


@pytest.mark.parametrize("read", ["direct", "paper"])
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**32), cells=st.integers(1, 7), code=st.integers(2, 24), word_bits=st.integers(2, 16))
def test_random_programs_follow_the_interpreter(read: str, seed: int, cells: int, code: int, word_bits: int) -> None:
    rng = random.Random(seed)
    programs = [random_program(rng, cells, code, word_bits) for _ in range(12)]
    assert_follows_interpreter(SubleqMachine(Sizes.of(programs), read=read), programs, steps=25)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_ten_thousand_random_programs_follow_the_interpreter(seed: int) -> None:
    rng = random.Random(seed)
    cells, code, word_bits = rng.randint(1, 20), rng.randint(2, 40), rng.randint(2, 21)
    programs = [random_program(rng, cells, code, word_bits) for _ in range(256)]
    assert_follows_interpreter(SubleqMachine(Sizes.of(programs)), programs, steps=40)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fast_path_passes_through_the_same_states_as_the_dense_network(dtype: torch.dtype) -> None:
    rng = random.Random(5)
    programs = [random_program(rng, cells=6, code=20, word_bits=12) for _ in range(24)]
    machine = SubleqMachine(Sizes.of(programs), dtype)
    for steps in (1, 2, 25):
        dense = machine.run(programs, max_steps=steps)
        fast = machine.run(programs, max_steps=steps, fast=True)
        assert torch.equal(dense.loop.state, fast.loop.state)
        assert dense.steps == fast.steps
        assert dense.status == fast.status


@pytest.mark.parametrize(("read", "scale", "drift"), [("direct", 30.0, 0.3), ("paper", 100.0, 1e-3)])
def test_direct_reads_survive_a_drifted_register_where_tied_ones_do_not(read: str, scale: float, drift: float) -> None:
    sizes = Sizes(memory=60, code=67, word_bits=8)
    machine = SubleqMachine(sizes, torch.float64, read=read, scale=scale)
    x = machine.encode([assemble(MULTIPLY)])
    x[:, 0, machine.layout.rows.cut("PC")] *= 1 + drift
    weight = float(machine.network.layers[0].attention(x)[0, 0, 0, 1 + sizes.memory])
    if read == "direct":
        assert weight > 1 - 5e-6
    else:
        assert abs(weight - 0.5) > 0.1  # it should be one half


@pytest.mark.gpu
def test_cuda_graph_of_the_fast_path_equals_the_dense_network() -> None:
    programs = mixed_programs()
    machine = SubleqMachine(Sizes.of(programs), device="cuda")
    x = machine.encode(programs)
    path = FastPath(machine.network, machine.layout, machine.scale)
    parts = path.split(x)
    step = GraphedStep(path, parts)
    with torch.inference_mode():
        for _ in range(30):
            x, parts = machine.network(x), step(parts)
    assert torch.equal(machine.layout.memory(path.join(x, parts)), machine.layout.memory(x))


def test_cuda_graph_refuses_a_machine_on_the_cpu() -> None:
    programs = mixed_programs()
    machine = SubleqMachine(Sizes.of(programs))
    path = FastPath(machine.network, machine.layout, machine.scale)
    with pytest.raises(PermafrostError, match="CUDA graphs need a machine on a GPU"):
        GraphedStep(path, path.split(machine.encode(programs)))


def mixed_programs() -> list[SubleqProgram]:
    first = assemble(MULTIPLY)
    second = assemble(".data\nx: 25\ny: -40\nt: 0\n.code\nsubleq t t\nsubleq x t\nsubleq t y\n", word_bits=8)
    return [first, second, first.with_values({"a": [3], "b": [5]})]


def test_a_batch_of_different_programs_equals_single_runs() -> None:
    programs = mixed_programs()
    machine = SubleqMachine.for_programs(programs)
    together = machine.run(programs)
    assert together.steps == [27, 3, 15]
    for index, program in enumerate(programs):
        alone = machine.run([program])
        assert alone.memory() == [together.memory()[index]]
        assert alone.memory()[0] == run_subleq(program, 1000).memory
        assert alone.steps == [together.steps[index]]


def test_programs_share_one_set_of_weights() -> None:
    first, second = mixed_programs()[0], mixed_programs()[2]
    weights = SubleqMachine.for_programs([first]).network.state_dict()
    other = SubleqMachine.for_programs([second])
    assert all(torch.equal(value, weights[name]) for name, value in other.network.state_dict().items())
    other.network.load_state_dict(weights)
    assert other.run([second]).values("acc") == [15]
    assert not list(other.network.parameters())


def test_state_is_unchanged_by_five_thousand_loops_after_halt() -> None:
    program = assemble(MULTIPLY)
    machine = SubleqMachine.for_programs([program])
    halted = machine.run([program]).loop.state
    with torch.inference_mode():
        x = state = machine.network(halted)  # the first HALT loads its own operands into the registers
        for _ in range(5000):
            x = machine.network(x)
    assert torch.equal(x, state)
    assert torch.equal(x, x.round())
    assert torch.equal(machine.layout.memory(x), machine.layout.memory(halted))
    assert torch.equal(machine.layout.counter(x), machine.layout.counter(halted))


def test_program_that_never_halts_has_a_status_and_no_result() -> None:
    endless = assemble(".data\nx: 0\n.code\nself: jmp self\n", word_bits=8)
    run = SubleqMachine.for_programs([endless]).run([endless], max_steps=50)
    assert run.status == ["step limit"]
    assert run.steps == [50]
    with pytest.raises(NotHalted, match="has not halted after 50 steps"):
        run.memory()
    assert run.partial_memory() == [[0, 0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("read", ["direct", "paper"])
def test_standard_modules_compute_the_same_states(dtype: torch.dtype, read: str) -> None:
    programs = mixed_programs()
    machine = SubleqMachine(Sizes.of(programs), dtype, read=read)
    standard = StandardTransformer(machine.network)
    x = y = machine.encode(programs)
    with torch.inference_mode():
        for _ in range(30):
            x, y = machine.network(x), standard(y)
            assert float((y - x).abs().max()) < 1e-6
    assert torch.equal(machine.layout.memory(y), machine.layout.memory(x))


def test_probe_reads_counter_and_memory_and_shows_the_layer_that_subtracts() -> None:
    """A linear probe reads the program counter and every memory bit; B - A appears behind layer 3 and not before."""
    rng = random.Random(3)
    programs = [random_program(rng, cells=3, code=6, word_bits=4) for _ in range(300)]
    machine = SubleqMachine(Sizes.of(programs))
    rows, x = machine.layout.rows, machine.encode(programs)
    states, after = machine.network.hidden_states(x)
    scratch = states[:, 0].double()
    memory = machine.layout.memory(x)
    difference = torch.tensor(
        [wrap(int(m[p.code[0].b] - m[p.code[0].a]), 4) for m, p in zip(memory, programs, strict=True)]
    )
    wanted = ((difference[:, None] >> torch.arange(4)) & 1).double() * 2 - 1
    accuracy = [linear_probe_accuracy(scratch[:, layer], wanted) for layer in range(5)]
    assert accuracy[3] == 1.0
    assert max(accuracy[0], accuracy[1], accuracy[4]) < 0.9
    counter = after[:, 0, rows.cut("PC")].sign().double()
    assert linear_probe_accuracy(states[:, 0, 4].double(), counter) == 1.0
    words = after[:, 1:4, rows.cut("MEM")].flatten(1).double()
    assert linear_probe_accuracy(states[:, 1:4, 4].flatten(1).double(), words) == 1.0


def linear_probe_accuracy(x: torch.Tensor, y: torch.Tensor) -> float:
    """Least squares on two thirds, accuracy per bit on the rest."""
    x = torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], dim=1)
    train = len(x) * 2 // 3
    weights = torch.linalg.pinv(x[:train]) @ y[:train]
    return float(((x[train:] @ weights).sign() == y[train:]).double().mean())
