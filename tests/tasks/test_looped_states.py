"""States of the looped transformer as a task."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pipeline.looped.layout import Layout, Sizes
from pipeline.looped.oracle import run_subleq, wrap
from pipeline.tasks.looped_states import LoopedStates

LAYOUT = Layout(Sizes(memory=4, code=6, word_bits=4))


def states(ask: str, after: int = 3) -> LoopedStates:
    return LoopedStates(kind="looped_states", seed=5, ask=ask, after=after, train=50, validation=7, test=9)


@pytest.mark.parametrize(("ask", "answers", "readout", "classes"), [("counter", 1, 1, 6), ("memory", 12, 3, 2)])
def test_shapes_and_sizes(ask: str, answers: int, readout: int, classes: int) -> None:
    task = states(ask).load()
    assert {name: len(split) for name, split in task.splits.items()} == {"train": 50, "validation": 7, "test": 9}
    block = task.splits["train"].read(10, 14)
    assert block.inputs.shape == (4, 11, LAYOUT.width)
    assert block.labels.shape == (4, answers)
    assert (task.readout, task.classes) == (readout, classes)
    assert task.splits["test"].read(0, 0).labels.shape == (0, answers)


def test_an_example_depends_on_seed_split_and_row_alone() -> None:
    task = states("memory").load()
    whole, part = task.splits["train"].read(0, 50), task.splits["train"].read(20, 23)
    np.testing.assert_array_equal(whole.inputs[20:23], part.inputs)
    np.testing.assert_array_equal(whole.labels[20:23], part.labels)
    assert not np.array_equal(task.splits["test"].read(0, 9).inputs, whole.inputs[:9])
    assert not np.array_equal(states("memory").examples(6, "train", np.arange(9))[0], whole.inputs[:9])


@pytest.mark.parametrize("ask", ["counter", "memory", "difference"])
def test_inputs_are_the_programs_start_states_with_the_answering_columns_last(ask: str) -> None:
    task = states(ask)
    rows = np.arange(8)
    inputs, _ = task.examples(5, "train", rows)
    plain = LAYOUT.encode(task.programs(5, "train", rows), torch.float32).numpy()
    last = [1, 2, 3] if ask == "memory" else [0]
    np.testing.assert_array_equal(inputs[:, -len(last) :], plain[:, last])
    assert sorted(map(bytes, inputs[0])) == sorted(map(bytes, plain[0].astype(np.int8)))


def test_answers_are_the_interpreters() -> None:
    rows = np.arange(40)
    for after in (1, 4):
        programs = states("counter").programs(5, "train", rows)
        before = [run_subleq(program, after - 1) for program in programs]
        ended = [run_subleq(program, after) for program in programs]
        found = {ask: states(ask, after).examples(5, "train", rows)[1] for ask in ("counter", "memory", "difference")}
        np.testing.assert_array_equal(found["counter"][:, 0], [one.counter for one in ended])
        weights = np.array([1, 2, 4, -8])
        words = found["memory"].reshape(-1, 3, 4) @ weights
        np.testing.assert_array_equal(words, [one.memory[:3] for one in ended])
        lines = [program.code[one.counter] for program, one in zip(programs, before, strict=True)]
        written = [wrap(one.memory[at.b] - one.memory[at.a], 4) for one, at in zip(before, lines, strict=True)]
        np.testing.assert_array_equal(found["difference"] @ weights, written)
