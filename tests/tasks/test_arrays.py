from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.tasks.arrays import Arrays
from pipeline.tasks.faults import BrokenSource, MissingSource
from pipeline.tasks.places import Places
from pipeline.tasks.task import EMPTY

RANDOM = np.random.default_rng(0)
PATCHES = RANDOM.normal(size=(50, 4, 3)).astype(np.float32)
IDS = RANDOM.integers(0, 9, (50, 6))
LABELS = np.arange(50) % 3


def places(folder: Path) -> Places:
    return Places(folder / "cache", folder / "work", offline=True)


def arrays(train: Path, kind: str = "patches", **changes: Any) -> Arrays:
    settings: dict[str, Any] = {"validation": str(train), "test": str(train)}
    return Arrays("arrays", 0, kind, str(train), **(settings | changes))  # pyright: ignore[reportArgumentType]


def written(folder: Path, form: str, **named: np.ndarray) -> Path:
    if form == "npy":
        folder.mkdir()
        for name, values in named.items():
            np.save(folder / f"{name}.npy", values)
        return folder
    path = folder.with_suffix(".npz")
    (np.savez_compressed if form == "compressed" else np.savez)(path, **named)  # pyright: ignore[reportArgumentType]
    return path


@pytest.mark.parametrize("form", ["npy", "npz", "compressed"])
def test_patches_are_what_was_saved(tmp_path: Path, form: str) -> None:
    path = written(tmp_path / "mine", form, inputs=PATCHES, labels=LABELS)
    task = arrays(path).load(places(tmp_path))
    block = task.splits["test"].read(0, 50)
    np.testing.assert_array_equal(block.inputs, PATCHES)
    np.testing.assert_array_equal(block.labels[:, 0], LABELS)
    assert (task.kind, task.vocabulary, task.classes, task.readout) == ("patches", None, 3, 1)
    assert block.inputs.dtype == np.float32
    assert block.lengths is None


@pytest.mark.parametrize(("dtype", "stored"), [("f8", "f4"), ("f2", "f2"), ("u1", "u1"), (">i2", "i2"), ("?", "u1")])
def test_numbers_keep_their_dtype_where_it_is_compact(tmp_path: Path, dtype: str, stored: str) -> None:
    values = (PATCHES > 0).astype(dtype)
    path = written(tmp_path / "mine", "npy", inputs=values, labels=LABELS)
    found = arrays(path).load(places(tmp_path)).splits["train"].read(0, 50).inputs
    assert found.dtype == np.dtype(stored)
    np.testing.assert_array_equal(found, values)


def test_ids_have_a_vocabulary_and_lengths(tmp_path: Path) -> None:
    lengths = np.array([6, 3, 0, *RANDOM.integers(1, 7, 47)])
    path = written(tmp_path / "mine", "npz", inputs=IDS, labels=LABELS, lengths=lengths)
    task = arrays(path, "ids", pad_id=9).load(places(tmp_path))
    block = task.splits["train"].read(0, 50)
    assert task.vocabulary == 10
    assert block.lengths is not None
    assert block.flags is not None
    assert block.lengths.tolist() == [max(1, length) for length in lengths]
    assert block.flags.tolist() == [EMPTY if length == 0 else 0 for length in lengths]
    np.testing.assert_array_equal(block.inputs[1], [*IDS[1, :3], 9, 9, 9])
    assert block.inputs[2].tolist() == [9] * 6


@pytest.mark.parametrize("dtype", ["i1", "u1", ">u2", "i4", "u8", "i8"])
def test_ids_of_every_whole_dtype_are_read(tmp_path: Path, dtype: str) -> None:
    path = written(tmp_path / "mine", "npy", inputs=IDS.astype(dtype), labels=LABELS)
    task = arrays(path, "ids").load(places(tmp_path))
    assert task.vocabulary == 9
    np.testing.assert_array_equal(task.splits["train"].read(0, 50).inputs, IDS)


@pytest.mark.parametrize(("kind", "rest"), [("patches", (4, 3)), ("ids", (6,))])
def test_no_rows_are_a_valid_empty_task(tmp_path: Path, kind: str, rest: tuple[int, ...]) -> None:
    path = written(tmp_path / "mine", "npz", inputs=np.zeros((0, *rest), np.uint8), labels=LABELS[:0])
    task = arrays(path, kind).load(places(tmp_path))
    assert [len(split) for split in task.splits.values()] == [0, 0, 0]
    assert task.splits["train"].read(0, 0).inputs.shape == (0, 1, *rest[1:])


def test_what_stands_in_an_empty_row_is_no_content(tmp_path: Path) -> None:
    inputs = PATCHES.copy()
    inputs[0, 0] = np.nan
    path = written(tmp_path / "mine", "npy", inputs=inputs, labels=LABELS, lengths=np.array([0] + [4] * 49))
    with pytest.raises(BrokenSource, match="row 0: a number that is not finite"):
        arrays(path).load(places(tmp_path / "a"))
    inputs[0, 0] = 7
    np.save(path / "inputs.npy", inputs)
    assert not arrays(path).load(places(tmp_path / "b")).splits["train"].read(0, 1).inputs.any()


def test_several_answers_are_read_off_as_many_tokens_unless_params_say_otherwise(tmp_path: Path) -> None:
    path = written(tmp_path / "mine", "npy", inputs=PATCHES, labels=np.stack([LABELS, LABELS[::-1]], axis=1))
    task = arrays(path).load(places(tmp_path / "a"))
    assert task.readout == 2
    np.testing.assert_array_equal(task.splits["test"].read(0, 50).labels[:, 1], LABELS[::-1])
    assert arrays(path, readout=1).load(places(tmp_path / "b")).readout == 1
    with pytest.raises(BrokenSource, match="2 answers cannot be read off 4 tokens"):
        arrays(path, readout=4).load(places(tmp_path / "c"))


@pytest.mark.parametrize(("labels", "names"), [([7, 0], [0, 7]), ([-1, 1], [-1, 1]), (["no", "yes"], ["no", "yes"])])
def test_gapped_negative_and_string_labels_are_encoded_and_the_mapping_is_kept(
    tmp_path: Path, labels: list[Any], names: list[Any]
) -> None:
    chosen = np.array(labels)[np.arange(50) % 2]
    task = arrays(written(tmp_path / "mine", "npy", inputs=PATCHES, labels=chosen)).load(places(tmp_path))
    encoded = task.splits["train"].read(0, 50).labels[:, 0]
    assert task.label_names == names
    assert [names[number] for number in encoded] == chosen.tolist()


@pytest.mark.parametrize("answers", [(), (1,), (2,)])
@pytest.mark.parametrize("dtype", ["f8", "f2", ">f4", "i2", "u1"])
def test_labels_that_are_numbers_are_kept_in_float32_and_read_off_one_token(
    tmp_path: Path, answers: tuple[int, ...], dtype: str
) -> None:
    labels = RANDOM.integers(0, 100, (50, *answers)).astype(dtype)
    task = arrays(written(tmp_path / "mine", "npy", inputs=PATCHES, labels=labels), labels="numbers").load(
        places(tmp_path)
    )
    found = task.splits["test"].read(0, 50).labels
    assert (task.classes, task.readout, task.label_names, found.dtype) == (0, 1, None, np.float32)
    np.testing.assert_array_equal(found, labels.astype(np.float32).reshape(50, -1))


def test_text_labels_are_no_numbers(tmp_path: Path) -> None:
    path = written(tmp_path / "mine", "npy", inputs=PATCHES, labels=np.array(["1.5"] * 50))
    with pytest.raises(BrokenSource, match="dtype <U3 are not numbers"):
        arrays(path, labels="numbers").load(places(tmp_path))


def test_shares_of_train_cover_every_row_once(tmp_path: Path) -> None:
    path = written(tmp_path / "mine", "npy", inputs=PATCHES, labels=LABELS)
    task = arrays(path, validation=0.2, test=0.2).load(places(tmp_path))
    everything = np.concatenate([split.read(0, len(split)).inputs for split in task.splits.values()])
    np.testing.assert_array_equal(np.sort(everything, axis=0), np.sort(PATCHES, axis=0))


def broken(values: np.ndarray, row: int, value: float) -> np.ndarray:
    changed = values.copy()
    changed[row, 1] = value
    return changed


NUMBERS = {"labels": "numbers"}
NOT_FINITE = r"row 7: label \[(nan|1e\+39)\] is not finite in float32"
BAD = [
    ("patches", {"inputs": broken(PATCHES, 7, np.nan)}, {}, "row 7: a number that is not finite"),
    ("patches", {"inputs": broken(PATCHES, 7, np.inf)}, {}, "row 7: a number that is not finite"),
    ("patches", {"inputs": broken(PATCHES.astype("f8"), 7, 1e39)}, {}, "row 7: a number that is not finite in float32"),
    ("patches", {"inputs": PATCHES, "labels": np.array([0.5] * 7 + [np.nan] + [1] * 42)}, NUMBERS, NOT_FINITE),
    ("patches", {"inputs": PATCHES, "labels": np.array([0.5] * 7 + [1e39] + [1] * 42)}, NUMBERS, NOT_FINITE),
    ("ids", {"inputs": broken(IDS, 7, -1)}, {}, "row 7: an id that is not one of 0 to 8"),
    ("ids", {"inputs": broken(IDS, 7, 30)}, {"vocabulary": 20}, "row 7: an id that is not one of 0 to 19"),
    ("ids", {"inputs": IDS, "lengths": np.array([6] * 7 + [7] + [6] * 42)}, {}, "row 7: length 7 is not one of 0 to 6"),
]


@pytest.mark.parametrize(("kind", "named", "changes", "reason"), BAD, ids=range(len(BAD)))
def test_a_bad_row_is_named_or_skipped(
    tmp_path: Path, kind: str, named: dict[str, np.ndarray], changes: dict[str, Any], reason: str
) -> None:
    path = written(tmp_path / "mine", "npy", **{"labels": LABELS, **named})
    with pytest.raises(BrokenSource, match=f"mine, {reason}"):
        arrays(path, kind, **changes).load(places(tmp_path / "a"))
    skipping = arrays(path, kind, validation=0.0, test=0.0, on_bad_row="skip", **changes)
    task = skipping.load(places(tmp_path / "b"))
    assert len(task.splits["train"]) == 49
    assert task.counts["bad_rows"]["count"] == 1


@pytest.mark.parametrize(
    ("named", "kind", "reason"),
    [
        ({"inputs": PATCHES}, "patches", "has no array 'labels'; it has inputs"),
        ({"inputs": PATCHES, "labels": LABELS[1:]}, "patches", r"inputs are \(50, 4, 3\), labels are \(49,\)"),
        ({"inputs": PATCHES[..., 0], "labels": LABELS}, "patches", r"inputs of shape \(50, 4\) .* are not patches"),
        ({"inputs": PATCHES, "labels": LABELS}, "ids", "are not ids"),
        (
            {"inputs": PATCHES, "labels": LABELS + 0.5},
            "patches",
            "dtype float64 are not classes\n.*set labels: numbers",
        ),
        ({"inputs": PATCHES, "labels": np.array([{}] * 50)}, "patches", "labels.npy cannot be read"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    tmp_path: Path, named: dict[str, np.ndarray], kind: str, reason: str
) -> None:
    path = written(tmp_path / "mine", "npy", **named)
    with pytest.raises(BrokenSource, match=reason):
        arrays(path, kind).load(places(tmp_path))


def test_damaged_files_are_named(tmp_path: Path) -> None:
    path = written(tmp_path / "mine", "npz", inputs=PATCHES, labels=LABELS)
    content = bytearray(path.read_bytes())
    content[400] ^= 1
    path.write_bytes(content)
    with pytest.raises(BrokenSource, match=r"mine.npz is not a sound .npz file: Bad CRC-32"):
        arrays(path).load(places(tmp_path / "a"))
    path.write_bytes(b"nothing")
    with pytest.raises(BrokenSource, match="is not a sound"):
        arrays(path).load(places(tmp_path / "b"))
    with pytest.raises(MissingSource, match=r"no.npz, the train file, does not exist"):
        arrays(tmp_path / "no.npz").load(places(tmp_path / "c"))
