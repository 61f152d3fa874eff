from pathlib import Path

import numpy as np
import pytest

from pipeline.tasks.faults import BrokenSource, MissingSource
from pipeline.tasks.floors import floors
from pipeline.tasks.images import images_of
from pipeline.tasks.mnist import DEBIAN_FASHION, FILES, Mnist
from pipeline.tasks.places import Places
from tests.tasks.files import idx_bytes, write_mnist


def mnist(folder: Path, variant: str = "code", **changes: object) -> Mnist:
    return Mnist("mnist", 0, variant, folder=str(folder), **changes)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("variant", "tokens", "side"), [("paper", 64, 32), ("code", 49, 28)])
@pytest.mark.parametrize("compressed", [True, False])
def test_variants_have_64_and_49_tokens_of_the_files_own_pixels(
    tmp_path: Path, variant: str, tokens: int, side: int, compressed: bool
) -> None:
    written = write_mnist(tmp_path, compressed=compressed)
    task = mnist(tmp_path, variant).load()
    block = task.splits["test"].read(0, 8)
    assert block.inputs.shape == (8, tokens, 16)
    images = images_of(block.inputs, side, 4, 1)[..., 0]
    margin = (side - 28) // 2
    np.testing.assert_array_equal(images[:, margin : side - margin, margin : side - margin], written[FILES[2]])
    assert images.sum() == written[FILES[2]].sum()
    np.testing.assert_array_equal(block.labels[:, 0], written[FILES[3]])
    assert task.choices == {"variant": variant, "side": side}
    assert task.scale == 1 / 255


def test_a_choice_set_alone_overrides_the_variant(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    assert mnist(tmp_path, "code", side=32, patch=2).load().splits["test"].read(0, 1).inputs.shape == (1, 256, 4)


def test_validation_is_carved_from_train_and_never_from_test(tmp_path: Path) -> None:
    written = write_mnist(tmp_path)
    splits = mnist(tmp_path, validation=0.25).load().splits
    assert [len(split) for split in splits.values()] == [15, 5, 8]
    held = np.concatenate([splits[name].read(0, 20).inputs for name in ("train", "validation")])
    assert {row.tobytes() for row in images_of(held, 28, 4, 1)} == {row.tobytes() for row in written[FILES[0]]}


def test_labels_out_of_range_are_named_or_skipped(tmp_path: Path) -> None:
    write_mnist(tmp_path, compressed=False)
    (tmp_path / FILES[3]).write_bytes(idx_bytes(np.array([0, 1, 2, 10, 4, 5, 255, 7], np.uint8)))
    with pytest.raises(BrokenSource, match="t10k-labels-idx1-ubyte, row 3: label 10 is not one of 0 to 9"):
        mnist(tmp_path).load()
    task = mnist(tmp_path, on_bad_row="skip").load()
    assert len(task.splits["test"]) == 6
    assert task.counts["bad_rows"]["count"] == 2
    assert "row 6: label 255" in task.counts["bad_rows"]["listed"][1]


def test_counts_and_sizes_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    write_mnist(tmp_path, compressed=False)
    (tmp_path / FILES[3]).write_bytes(idx_bytes(np.zeros(7, np.uint8)))
    with pytest.raises(BrokenSource, match=r"has 8 images, .* has 7 labels"):
        mnist(tmp_path).load()
    (tmp_path / FILES[0]).write_bytes(idx_bytes(np.zeros((20, 32, 32), np.uint8)))
    with pytest.raises(BrokenSource, match="images of 32 × 32 pixels, not 28 × 28"):
        mnist(tmp_path).load()


def test_when_nothing_is_there_the_error_says_which_file_is_wanted_where(tmp_path: Path) -> None:
    write_mnist(tmp_path / "own")
    (tmp_path / "own" / f"{FILES[3]}.gz").unlink()
    with pytest.raises(MissingSource, match=f"own lacks {FILES[3]}\n"):
        mnist(tmp_path / "own").load()
    places = Places(tmp_path / "cache", tmp_path, offline=True)
    with pytest.raises(MissingSource, match=r"MNIST/raw lacks .*downloads are off") as caught:
        Mnist("mnist", 0, "paper").load(places)
    assert "name the folder that holds them as `folder`" in str(caught.value)


def test_what_the_cache_folder_has_is_used_without_a_download(tmp_path: Path) -> None:
    write_mnist(tmp_path / "cache" / "MNIST" / "raw")
    task = Mnist("mnist", 0, "paper").load(Places(tmp_path / "cache", tmp_path, offline=True))
    assert len(task.splits["test"]) == 8


@pytest.mark.skipif(not DEBIAN_FASHION.is_dir(), reason="Debian's package dataset-fashion-mnist is not installed")
def test_the_real_fashion_mnist_is_found_and_read(tmp_path: Path) -> None:
    task = Mnist("fashion_mnist", 0, "paper").load(Places(tmp_path, tmp_path, offline=True))
    assert [len(split) for split in task.splits.values()] == [54_000, 6_000, 10_000]
    test = task.splits["test"].read(0, 10_000)
    assert test.inputs.shape == (10_000, 64, 16)
    assert np.bincount(test.labels[:, 0]).tolist() == [1000] * 10
    assert test.labels[:5, 0].tolist() == [9, 2, 1, 1, 6]


@pytest.mark.slow
@pytest.mark.skipif(not DEBIAN_FASHION.is_dir(), reason="Debian's package dataset-fashion-mnist is not installed")
def test_floors_of_the_real_fashion_mnist(tmp_path: Path) -> None:
    found = floors(Mnist("fashion_mnist", 0, "paper").load(Places(tmp_path, tmp_path, offline=True)))
    assert found["majority class"] == pytest.approx(0.1)
    assert 0.8 < found["linear model on raw inputs"] < 0.86
