import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.identity import MANIFEST, StaleArtifact, file_digests
from pipeline.tasks import layout
from pipeline.tasks.bit_xor import BitXor
from pipeline.tasks.cifar10 import normalisation
from pipeline.tasks.task import Block, Split, TaskData
from pipeline.tasks.tokens import Tokens, open_tokens
from pipeline.tasks.writing import write_tokens

RANDOM = np.random.default_rng(0)


def ragged(rows: int) -> Split:
    lengths = RANDOM.integers(1, 8, rows).astype(np.int32)
    inputs = np.where(np.arange(8) < lengths[:, None], RANDOM.integers(1, 99, (rows, 8)), 0).astype(np.uint16)
    block = Block(inputs, RANDOM.integers(0, 3, (rows, 1)).astype(np.uint8), lengths, np.zeros(rows, np.uint8))
    return Split(rows, lambda start, stop: block.take(slice(start, stop)))


def ids_task(rows: int = 1000, **more: Any) -> TaskData:
    sizes = {"train": rows, "validation": rows // 5, "test": rows // 4}
    splits = {name: ragged(size) for name, size in sizes.items()}
    return TaskData("ids", 3, 1, splits, {"name": "made"}, vocabulary=99, **more)


def stored(path: Path, task: TaskData, floors: dict[str, float] | None = None) -> Tokens:
    write_tokens(path, "made", {"seed": 0}, task, floors or {})
    return open_tokens(path)


@pytest.mark.parametrize("rows", [0, 1, 7, 128, 129, 1000])
def test_stored_examples_are_the_tasks_whatever_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(layout, "CHUNK_BYTES", 16 * 32)
    monkeypatch.setattr(layout, "SHARD_BYTES", 16 * 128)
    task = ids_task(rows)
    tokens = stored(tmp_path / "t", task)
    for name, split in task.splits.items():
        block, found = split.read(0, len(split)), tokens.splits[name]
        assert len(found) == len(split)
        assert found.lengths is not None
        np.testing.assert_array_equal(found.inputs[:], block.inputs)
        np.testing.assert_array_equal(found.read_labels(), block.labels)
        np.testing.assert_array_equal(found.lengths[:], block.lengths)
        assert found.inputs.dtype == np.uint16
    assert tokens.length == 8
    assert tokens.manifest["examples"]["train"] == rows


def test_streamed_equals_stored_through_the_whole_path(tmp_path: Path) -> None:
    settings = BitXor("bit_xor", 0, 4, "unseen", 0.2, 0.2)
    tokens = stored(tmp_path / "t", settings.load())
    rows = np.arange(len(tokens.splits["test"]))
    inputs, labels = settings.examples(0, "test", rows)
    np.testing.assert_array_equal(tokens.splits["test"].inputs[:], inputs)
    np.testing.assert_array_equal(tokens.splits["test"].read_labels(), labels)


def test_equal_tasks_are_equal_bytes_and_the_digest_does_not_depend_on_floors(tmp_path: Path) -> None:
    task = ids_task()
    one, two = stored(tmp_path / "a", task, {"majority class": 0.3}), stored(tmp_path / "b", task, {"other": 0.9})
    assert one.digest == two.digest
    assert file_digests(tmp_path / "a") == file_digests(tmp_path / "b")
    assert two.floors == {"other": 0.9}
    assert stored(tmp_path / "c", ids_task()).digest != one.digest


def test_attributes_come_back_as_they_were(tmp_path: Path) -> None:
    more = {
        "pad_id": 5,
        "embedding": "backbone",
        "tokenizer": {"backbone": "minilm", "sha256": "12"},
        "choices": {"variant": "paper", "side": 32},
        "label_names": ["no", "yes", "é"],
        "image": {"side": 32, "channels": 3, "patch": 4},
        "augment": "crop_flip_rotate",
    }
    tokens = stored(tmp_path / "t", ids_task(**more))
    assert {key: getattr(tokens, key) for key in more} == more
    assert (tokens.kind, tokens.classes, tokens.readout, tokens.vocabulary) == ("ids", 3, 1, 99)


def test_a_task_of_equal_lengths_has_none(tmp_path: Path) -> None:
    tokens = stored(tmp_path / "t", BitXor("bit_xor", 0, 4, "same", 0.2, 0.2).load())
    split = tokens.splits["train"]
    assert split.lengths is None
    assert split.flags is None
    assert split.read_lengths().tolist() == [8] * 256
    assert (tokens.length, tokens.features, tokens.answers) == (8, 1, 4)
    assert tokens.manifest["repeats"]["test in train"] == 256


def test_colour_is_normalised_feature_by_feature(tmp_path: Path) -> None:
    split = Split.of(np.full((2, 1, 12), 128, np.uint8), np.zeros((2, 1), np.uint8))
    splits = {name: split for name in ("train", "validation", "test")}  # noqa: C420
    tokens = stored(tmp_path / "t", TaskData("patches", 10, 1, splits, {}, **normalisation("rgb", 2)))
    numbers = tokens.normalise(np.asarray(tokens.splits["train"].inputs[:]))
    wanted = (128 / 255 - np.array([0.4914, 0.4822, 0.4465])) / np.array([0.2023, 0.1994, 0.2010])
    assert numbers.dtype == np.float32
    np.testing.assert_allclose(numbers[0, 0], np.tile(wanted, 4), rtol=1e-5)


def test_big_splits_are_few_files_and_blocks_are_read_once_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "CHUNK_BYTES", 64)
    monkeypatch.setattr(layout, "SHARD_BYTES", 256)
    monkeypatch.setattr(layout, "MOST_SHARDS", 9)
    reads: list[tuple[int, int]] = []
    task = ids_task(700)
    inner = task.splits["train"]

    def read(start: int, stop: int) -> Block:
        reads.append((start, stop))
        return inner.read(start, stop)

    task.splits["train"] = Split(700, read)
    write_tokens(tmp_path / "t", "made", {}, task, {})
    assert sum(1 for path in (tmp_path / "t" / "train" / "inputs" / "c").rglob("*") if path.is_file()) <= 9
    streamed = [stretch for stretch in reads if stretch != (0, 0)]
    assert [start for start, _ in streamed] == [0, *(stop for _, stop in streamed[:-1])]
    assert streamed[-1][1] == 700


def test_an_unfinished_or_older_artifact_is_refused_with_the_command_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(StaleArtifact, match="does not exist"):
        open_tokens(tmp_path / "none")
    stored(tmp_path / "t", ids_task(10))
    attributes = tmp_path / "t" / "zarr.json"
    meta = json.loads(attributes.read_text())
    del meta["attributes"]["augment"]
    attributes.write_text(json.dumps(meta))
    with pytest.raises(StaleArtifact, match="lacks augment") as caught:
        open_tokens(tmp_path / "t")
    assert caught.value.mend == "dvc repro prepare@t"
    (tmp_path / "t" / MANIFEST).unlink()
    with pytest.raises(StaleArtifact, match="never finished"):
        open_tokens(tmp_path / "t")
