from pathlib import Path

import numpy as np
import pytest

from pipeline.tasks.spool import Spool, Spools

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("features", [(), (2,)])
def test_any_stretch_reads_back_what_was_appended(tmp_path: Path, features: tuple[int, ...]) -> None:
    spool = Spool(tmp_path / "s", np.uint16, features, answers=2)
    rows: list[np.ndarray] = []
    labels = RANDOM.integers(0, 5, (23, 2))
    for start, stop in ((0, 4), (4, 4), (4, 20), (20, 23)):
        part = [RANDOM.integers(1, 99, (RANDOM.integers(1, 9), *features)) for _ in range(stop - start)]
        rows += part
        flat = np.concatenate([np.empty((0, *features), np.int64), *part])
        spool.append(flat, np.array([len(row) for row in part], np.int64), labels[start:stop])
    assert spool.longest == max(map(len, rows))
    assert spool.lengths().tolist() == [len(row) for row in rows]
    split = spool.split(10, np.uint8, pad=7)
    for start, stop in ((0, 23), (5, 6), (22, 23), (3, 17), (9, 9)):
        block = split.read(start, stop)
        np.testing.assert_array_equal(block.labels, labels[start:stop])
        assert block.lengths is not None
        for found, length, row in zip(block.inputs, block.lengths, rows[start:stop], strict=True):
            np.testing.assert_array_equal(found[:length], row)
            assert (found[length:] == 7).all()


def test_nothing_appended_is_an_empty_split_with_width_and_dtypes(tmp_path: Path) -> None:
    block = Spool(tmp_path / "s", np.uint16).split(6, np.uint8).read(0, 0)
    assert block.inputs.shape == (0, 6)
    assert (block.inputs.dtype, block.labels.dtype) == (np.uint16, np.uint8)


def test_splits_are_filled_in_one_pass_and_padded_to_the_longest_of_all(tmp_path: Path) -> None:
    spools = Spools(tmp_path, np.uint8)
    flags = np.zeros(4, np.uint8)
    part, lengths = np.array([2, 0, 0, 1]), np.array([3, 1, 2, 1])
    spools.append(part, np.array([1, 2, 3, 4, 5, 6, 7]), lengths, np.arange(4)[:, None], flags)
    splits = spools.splits(np.uint8, order=np.array([3, 2, 1, 0]))
    assert splits["train"].read(0, 2).inputs.tolist() == [[4, 0, 0], [5, 6, 0]]
    assert splits["test"].read(0, 1).inputs.tolist() == [[1, 2, 3]]
    assert splits["train"].read(0, 2).labels.tolist() == [[2], [1]]
