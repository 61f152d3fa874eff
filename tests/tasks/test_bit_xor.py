import numpy as np
import pytest

from pipeline.tasks.bit_xor import BitXor
from pipeline.tasks.floors import floors


def xor(bits: int = 4, split: str = "unseen", patterns: int = 2, patch: int = 1) -> BitXor:
    return BitXor("bit_xor", 0, bits, split, 0.15, 0.15, patterns, patch)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("bits", "patterns", "patch"), [(4, 2, 1), (4, 3, 2), (3, 4, 3)])
def test_the_reference_solver_is_right_on_every_bit(bits: int, patterns: int, patch: int) -> None:
    task = xor(bits, "unseen", patterns, patch).load()
    for split in task.splits.values():
        block = split.read(0, len(split))
        assert block.inputs.shape[1:] == (bits * patterns // patch, patch)
        assert task.readout == bits // patch
        strings = block.inputs.reshape(len(block), patterns, bits)
        np.testing.assert_array_equal(strings.sum(axis=1) % 2, block.labels)


def test_unseen_inputs_are_split_without_overlap_and_without_a_gap() -> None:
    splits = xor().load().splits
    inputs = np.concatenate([split.read(0, len(split)).inputs[..., 0] for split in splits.values()])
    assert len(np.unique(inputs, axis=0)) == len(inputs) == 256


def test_the_papers_split_tests_on_what_it_trains_on() -> None:
    splits = xor(split="same").load().splits
    assert len(splits["test"]) == 256
    np.testing.assert_array_equal(splits["train"].read(0, 256).inputs, splits["test"].read(0, 256).inputs)


def test_streamed_examples_equal_stored_ones_and_come_again_in_new_orders() -> None:
    settings = xor()
    split = settings.load().splits["train"]
    stored, count = split.read(0, len(split)), len(split)
    inputs, labels = settings.examples(0, "train", np.array([5, 2]))
    np.testing.assert_array_equal(inputs, stored.inputs[[5, 2]])
    np.testing.assert_array_equal(labels, stored.labels[[5, 2]])
    passes = [settings.examples(0, "train", np.arange(count) + again * count)[0] for again in (0, 1, 2**30)]
    orders = [np.packbits(one.reshape(count, -1), axis=1).ravel().tolist() for one in passes]
    assert sorted(orders[0]) == sorted(orders[1]) == sorted(orders[2])
    assert orders[0] != orders[1] != orders[2] != orders[0]
    across, _ = settings.examples(0, "train", np.array([count - 1, count]))
    np.testing.assert_array_equal(across, [passes[0][-1], passes[1][0]])


def test_no_floor_solves_it() -> None:
    found = floors(xor(bits=5).load())
    assert set(found) == {"majority class", "copy the last string", "linear model on raw inputs"}
    assert all(0.4 < score < 0.6 for score in found.values())


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="patch 3 does not divide bits 4"):
        xor(bits=4, patch=3)
    with pytest.raises(ValueError, match="bits × patterns is 21"):
        xor(bits=7, patterns=3)
