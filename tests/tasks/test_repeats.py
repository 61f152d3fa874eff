from pathlib import Path

import numpy as np
import pytest
import zarr

from pipeline.tasks import repeats
from pipeline.tasks.repeats import content_hashes, count_repeats
from pipeline.tasks.task import Block


def hashed(inputs: np.ndarray, lengths: list[int] | None = None) -> np.ndarray:
    labels = np.zeros((len(inputs), 1), np.uint8)
    return content_hashes(Block(inputs, labels, None if lengths is None else np.array(lengths, np.int32)))


def test_equal_inputs_have_equal_hashes_and_others_do_not() -> None:
    inputs = np.random.default_rng(0).integers(0, 2, (2000, 6)).astype(np.uint8)
    hashes = hashed(inputs)
    same_input = (inputs[:, None] == inputs[None]).all(axis=2)
    same_hash = (hashes[:, None] == hashes[None]).all(axis=2)
    np.testing.assert_array_equal(same_input, same_hash)


def test_padding_is_no_content_but_a_real_pad_token_is() -> None:
    inputs = np.array([[1, 2, 0, 0], [1, 2, 0, 0], [1, 2, 0, 0]], np.uint8)
    first, second, third = hashed(inputs, [2, 3, 2])
    assert (first == third).all()
    assert (first != second).any()


@pytest.mark.parametrize("at_once", [2**18, 50])
def test_repeats_are_those_that_a_plain_comparison_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(repeats, "HASHES_AT_ONCE", at_once)
    random = np.random.default_rng(1)
    splits = {name: random.integers(0, 300, size) for name, size in (("train", 400), ("validation", 90), ("test", 120))}
    arrays = {}
    for name, values in splits.items():
        hashes = hashed(values[:, None].astype(np.uint16))
        arrays[name] = zarr.create_array(tmp_path / name, shape=hashes.shape, dtype="u8", chunks=(64, 2))
        arrays[name][:] = hashes
    found = count_repeats(arrays)
    train = set(splits["train"].tolist())
    for name in ("validation", "test"):
        assert found[f"{name} in train"] == sum(value in train for value in splits[name].tolist())
    for name, values in splits.items():
        assert found[f"repeated in {name}"] == len(values) - len(set(values.tolist()))
