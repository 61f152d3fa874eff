import numpy as np
import pytest

from pipeline.tasks.bit_memory import BitMemory
from pipeline.tasks.floors import floors

SMALL = BitMemory("bit_memory", seed=3, train=40, validation=10, test=30, patterns=3, bits=20, patch=5)


def recalled(inputs: np.ndarray, settings: BitMemory) -> np.ndarray:
    """The reference solver: the pattern that agrees with the query wherever it is not masked."""
    rows = inputs.reshape(len(inputs), settings.patterns + 1, settings.bits).astype(int)
    patterns, query = rows[:, :-1], rows[:, -1:]
    agreement = (patterns * query).sum(axis=2)
    return (patterns[np.arange(len(rows)), agreement.argmax(axis=1)] > 0).astype(int)


def test_the_papers_sizes_give_120_tokens_of_50_bits_and_1000_answers_off_the_last_20() -> None:
    task = BitMemory("bit_memory", seed=0, train=2, validation=0, test=2).load()
    block = task.splits["train"].read(0, 2)
    assert block.inputs.shape == (2, 120, 50)
    assert block.labels.shape == (2, 1000)
    assert task.readout == 20
    assert set(np.unique(block.inputs[:, :100])) == {-1, 1}
    assert set(np.unique(block.inputs[:, 100:])) == {-1, 0, 1}


def test_the_reference_solver_is_right_on_every_bit() -> None:
    settings = BitMemory("bit_memory", seed=0, train=100, validation=0, test=0)
    block = settings.load().splits["train"].read(0, 100)
    np.testing.assert_array_equal(recalled(block.inputs, settings), block.labels)


def test_streamed_examples_equal_stored_ones_in_any_order() -> None:
    stored = SMALL.load().splits["train"].read(0, 40)
    rows = np.array([39, 0, 17, 18])
    inputs, labels = SMALL.examples(3, "train", rows)
    np.testing.assert_array_equal(inputs, stored.inputs[rows])
    np.testing.assert_array_equal(labels, stored.labels[rows])


def test_splits_and_seeds_differ() -> None:
    rows = np.arange(10)
    train = SMALL.examples(3, "train", rows)[0]
    assert (train != SMALL.examples(3, "test", rows)[0]).any(axis=(1, 2)).all()
    assert (train != SMALL.examples(4, "train", rows)[0]).any(axis=(1, 2)).all()


def test_copying_what_is_visible_scores_75_percent() -> None:
    settings = BitMemory("bit_memory", seed=0, train=50, validation=20, test=400, patterns=2, bits=100, patch=50)
    found = floors(settings.load())
    assert found["copy what is visible, guess the rest"] == pytest.approx(0.75, abs=0.01)
    assert found["majority class"] == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize(("masked", "zeros"), [(0.0, 0.0), (1.0, 1.0), (0.2, 0.2)])
def test_the_masked_share_is_a_param(masked: float, zeros: float) -> None:
    settings = BitMemory("bit_memory", 0, train=100, validation=0, test=0, bits=100, patch=50, masked=masked)
    query = settings.load().splits["train"].read(0, 100).inputs[:, -2:]
    assert np.mean(query == 0) == pytest.approx(zeros, abs=0.02)


def test_a_patch_that_does_not_divide_the_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="patch 7 does not divide bits 20"):
        BitMemory("bit_memory", 0, train=1, validation=1, test=1, bits=20, patch=7)
