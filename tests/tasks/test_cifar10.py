import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.tasks.cifar10 import Cifar10, normalisation
from pipeline.tasks.faults import BrokenSource, MissingSource
from pipeline.tasks.floors import floors
from pipeline.tasks.places import Places
from pipeline.tasks.task import Split
from tests.tasks.files import RunsCode, cifar_batch, write_cifar


def cifar(folder: Path, variant: str = "code", **changes: object) -> Cifar10:
    return Cifar10("cifar10", 0, variant, folder=str(folder), **changes)  # pyright: ignore[reportArgumentType]


def colour(pictures: np.ndarray) -> np.ndarray:
    """Planar bytes as `(image, row, column, channel)`, pixel by pixel."""
    return np.stack([pictures[:, plane * 1024 : (plane + 1) * 1024].reshape(-1, 32, 32) for plane in range(3)], axis=3)


@pytest.mark.parametrize(("variant", "tokens", "features"), [("paper", 64, 16), ("code", 64, 48), ("lra", 1024, 1)])
def test_variants_have_the_sizes_of_paper_code_and_lra(
    tmp_path: Path, variant: str, tokens: int, features: int
) -> None:
    write_cifar(tmp_path)
    task = cifar(tmp_path, variant).load()
    assert task.splits["train"].read(0, 2).inputs.shape == (2, tokens, features)
    assert [len(split) for split in task.splits.values()] == [27, 3, 6]


@pytest.mark.parametrize("binary", [False, True])
def test_pickled_and_binary_batches_give_the_pictures_that_were_written(tmp_path: Path, binary: bool) -> None:
    written = write_cifar(tmp_path, binary=binary)
    pictures, labels = written["test_batch"]
    block = cifar(tmp_path).load().splits["test"].read(0, 6)
    assert block.labels[:, 0].tolist() == labels
    images = colour(pictures)
    for token in (0, 1, 9, 63):
        row, column = 4 * (token // 8), 4 * (token % 8)
        tile = images[:, row : row + 4, column : column + 4]
        np.testing.assert_array_equal(block.inputs[:, token], tile.reshape(6, 48))


def test_grey_is_torchvisions_to_within_half_a_level(tmp_path: Path) -> None:
    pictures, _ = write_cifar(tmp_path)["test_batch"]
    stored = cifar(tmp_path, "lra").load().splits["test"].read(0, 6).inputs[..., 0]
    exact = (colour(pictures) @ np.array([0.2989, 0.587, 0.114])).reshape(6, 1024)
    assert np.abs(stored - exact).max() <= 0.5


def test_lras_own_task_is_grey_levels_as_ids(tmp_path: Path) -> None:
    written = write_cifar(tmp_path)
    task = cifar(tmp_path, "lra_ids").load()
    block = task.splits["test"].read(0, 6)
    assert (task.kind, task.vocabulary, block.inputs.shape, block.inputs.dtype) == ("ids", 256, (6, 1024), np.uint8)
    assert [len(split) for split in task.splits.values()] == [27, 3, 6]
    exact = (colour(written["test_batch"][0]) @ np.array([0.2989, 0.587, 0.114])).reshape(6, 1024)
    cut_off = np.floor(exact * (255.5 / 255) + 1e-4)  # float32 may fall on either side of a whole number
    assert (block.inputs == cut_off).mean() > 0.999
    assert np.abs(block.inputs - exact).max() <= 1


def test_ids_are_never_coloured_nor_augmented(tmp_path: Path) -> None:
    for changes in ({"color": "rgb"}, {"patch": 4}, {"augment": "crop_flip_rotate"}):
        with pytest.raises(ValueError, match="inputs: ids are grey levels: they go with color: grey"):
            cifar(tmp_path, "lra_ids", **changes)


def test_the_linear_floor_of_ids_takes_brightness_for_a_number(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    ids = cifar(tmp_path, "lra_ids").load()
    blocks = {name: split.read(0, len(split)) for name, split in ids.splits.items()}
    splits = {name: Split.of(block.inputs[..., None], block.labels) for name, block in blocks.items()}
    numbers = replace(ids, kind="patches", vocabulary=None, splits=splits)
    assert floors(ids) == floors(numbers)


def test_normalisation_is_the_codes() -> None:
    scheme = normalisation("rgb", 2)
    pixel = np.array([255, 0, 128] * 4)
    numbers = (pixel - np.array(scheme["offset"])) * np.array(scheme["scale"])
    wanted = [(1 - 0.4914) / 0.2023, -0.4822 / 0.1994, (128 / 255 - 0.4465) / 0.2010]
    assert numbers == pytest.approx(wanted * 4)
    scheme = normalisation("grey", 4)
    assert (np.array([0, 255]) - scheme["offset"]) * scheme["scale"] == pytest.approx([-1, 1])


def test_choices_are_recorded_and_augmentation_is_an_attribute(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    task = cifar(tmp_path, "paper", color="rgb", augment="crop_flip_rotate").load()
    assert task.choices == {"variant": "paper", "color": "rgb", "patch": 4, "inputs": "patches"}
    assert task.augment == "crop_flip_rotate"
    assert task.image == {"side": 32, "channels": 3, "patch": 4}
    assert cifar(tmp_path, "paper").load().augment is None


def test_the_unpacked_folder_may_lie_inside_the_named_one(tmp_path: Path) -> None:
    write_cifar(tmp_path / "cifar-10-batches-py")
    assert len(cifar(tmp_path).load().splits["test"]) == 6


def test_a_batch_that_tries_to_run_code_does_not_run(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    (tmp_path / "data_batch_3").write_bytes(pickle.dumps({"data": RunsCode(tmp_path / "ran"), "labels": []}))
    with pytest.raises(BrokenSource, match="data_batch_3: refused: it names "):
        cifar(tmp_path).load()
    assert not (tmp_path / "ran").exists()


PICTURES = np.zeros((3, 3072), np.uint8)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (cifar_batch(PICTURES, [0, 1, 10]), "data_batch_2, row 2: label 10 is not one of 0 to 9"),
        (cifar_batch(PICTURES, [0, 1]), r"has 3 pictures and labels of shape \(2,\)"),
        (cifar_batch(PICTURES[:, 1:], [0, 1, 2]), "`data` is not an array of bytes"),
        (pickle.dumps({"data": PICTURES}), "needs a dict with `data` and `labels`"),
        (pickle.dumps({"data": PICTURES, "labels": ["cat", "dog", "cow"]}), "`labels` are not whole numbers"),
        (cifar_batch(PICTURES, [0, 1, 2])[:-500], "refused: not a readable pickle"),
    ],
)
def test_a_broken_batch_is_named_with_the_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    write_cifar(tmp_path)
    (tmp_path / "data_batch_2").write_bytes(content)
    with pytest.raises(BrokenSource, match=reason) as caught:
        cifar(tmp_path).load()
    assert "data_batch_2" in str(caught.value)


def test_bad_labels_are_skipped_on_request_and_a_cut_binary_file_is_named(tmp_path: Path) -> None:
    write_cifar(tmp_path, binary=True)
    path = tmp_path / "data_batch_1.bin"
    content = bytearray(path.read_bytes())
    content[3073] = 77
    path.write_bytes(content)
    task = cifar(tmp_path, on_bad_row="skip").load()
    assert task.counts["bad_rows"] == {
        "count": 1,
        "listed": [f"{path}, row 1: label 77 is not one of 0 to 9"],
    }
    path.write_bytes(content[:-10])
    with pytest.raises(BrokenSource, match=r"data_batch_1.bin, row 5: the file ends after 3063 of its 3073 bytes"):
        cifar(tmp_path).load()


def test_without_files_the_error_says_what_is_wanted_where(tmp_path: Path) -> None:
    with pytest.raises(MissingSource, match=r"cifar-10-batches-py lacks data_batch_1.*test_batch; downloads are off"):
        Cifar10("cifar10", 0, "code").load(Places(tmp_path, tmp_path, offline=True))
