import numpy as np
import pytest

from pipeline.tasks.listops_generator import BLOCK, Expressions, draw_block
from pipeline.tasks.listops_language import CLOSE, DIGITS, MEANING, evaluate


@pytest.fixture(scope="module")
def blocks() -> list[Expressions]:
    return [draw_block(0, "train", block) for block in range(8)]


def expressions(block: Expressions) -> list[list[int]]:
    return [part.tolist() for part in np.split(block.ids, np.cumsum(block.lengths)[:-1])]


def test_the_evaluator_agrees_with_every_value(blocks: list[Expressions]) -> None:
    for ids, value in zip(expressions(blocks[0]), blocks[0].values, strict=True):
        assert evaluate(ids) == value


def test_lengths_are_within_the_bounds_and_where_lras_are(blocks: list[Expressions]) -> None:
    lengths = np.concatenate([block.lengths for block in blocks])
    assert all(len(block.lengths) == BLOCK for block in blocks)
    assert lengths.min() > 500
    assert lengths.max() < 2000
    assert lengths.mean() == pytest.approx(1055, rel=0.06)  # 6000 draws of the source's own algorithm


def test_labels_have_lras_prior(blocks: list[Expressions]) -> None:
    values = np.concatenate([block.values for block in blocks])
    share = np.bincount(values, minlength=10) / len(values)
    assert share[[0, 9]] == pytest.approx(0.17, abs=0.025)
    assert share[1:9] == pytest.approx(0.083, abs=0.025)


def test_operators_have_2_to_10_arguments_and_depth_ends_at_10(blocks: list[Expressions]) -> None:
    for ids in expressions(blocks[1])[:60]:
        counts, depth, deepest = [0], 0, 0
        for number in ids:
            if number == CLOSE:
                assert 2 <= counts.pop() <= 10
                continue
            counts[-1] += 1
            if number in MEANING:
                counts.append(0)
            depth = len(counts) + (number in DIGITS)
            deepest = max(deepest, depth - 1)
        assert deepest <= 10


def test_operators_and_digits_are_even(blocks: list[Expressions]) -> None:
    ids = np.concatenate([block.ids for block in blocks])
    for kinds in (DIGITS, MEANING):
        counts = np.bincount(ids, minlength=16)[list(kinds)]
        assert counts / counts.mean() == pytest.approx(1, abs=0.03)


def test_a_block_is_a_function_of_seed_split_and_number(blocks: list[Expressions]) -> None:
    np.testing.assert_array_equal(draw_block(0, "train", 3).ids, blocks[3].ids)
    others = [blocks[0], blocks[3], draw_block(1, "train", 3), draw_block(0, "test", 3)]
    assert len({block.ids.tobytes() for block in others}) == 4
