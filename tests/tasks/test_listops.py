from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.tasks import listops_language as language
from pipeline.tasks.faults import BrokenSource, MissingSource
from pipeline.tasks.floors import majority, scores
from pipeline.tasks.listops import ListOps
from pipeline.tasks.listops_generator import draw_block
from pipeline.tasks.places import Places
from pipeline.tasks.task import TRUNCATED
from tests.tasks.files import lra_line, write_lra

COUNTS: dict[str, Any] = {"train": 300, "validation": 20, "test": 40}


def places(folder: Path) -> Places:
    return Places(folder / "cache", folder / "work", offline=True)


def listops(variant: str, **changes: Any) -> ListOps:
    return ListOps("listops", 0, variant, **(COUNTS | changes))  # pyright: ignore[reportArgumentType]


def test_repaired_keeps_brackets_up_to_2000_tokens_and_reads_the_last_one(tmp_path: Path) -> None:
    task = listops("repaired").load(places(tmp_path))
    block = task.splits["train"].read(0, 300)
    assert (task.vocabulary, task.pad_id, task.readout) == (16, 0, 1)
    assert block.lengths is not None
    for ids, length, label in zip(block.inputs, block.lengths, block.labels, strict=True):
        assert language.evaluate(ids[:length].tolist()) == label[0]
        assert not ids[length:].any()
    assert block.inputs.shape[1] == max(split.read(0, len(split)).lengths.max() for split in task.splits.values())  # pyright: ignore[reportOptionalMemberAccess]


def test_paper_code_drops_brackets_and_reads_position_511_whatever_stands_there(tmp_path: Path) -> None:
    task = listops("paper-code").load(places(tmp_path))
    block = task.splits["train"].read(0, 256)
    assert task.vocabulary == 15
    assert block.inputs.shape == (256, 512)
    assert block.inputs.max() == 14
    assert block.lengths is None
    drawn = draw_block(0, "train", 0)
    first = drawn.ids[: drawn.lengths[0]]
    np.testing.assert_array_equal(block.inputs[0], first[first != language.CLOSE][:512])


def test_paper_code_truncates_88_percent_and_pads_the_rest(tmp_path: Path) -> None:
    task = listops("paper-code", train=1024).load(places(tmp_path))
    block = task.splits["train"].read(0, 1024)
    assert block.flags is not None
    assert np.mean(block.flags == TRUNCATED) == pytest.approx(0.88, abs=0.03)
    assert np.mean(block.inputs[:, -1] == 0) == pytest.approx(0.12, abs=0.03)


def test_each_choice_can_be_set_alone(tmp_path: Path) -> None:
    task = listops("paper-code", max_tokens=600, brackets="keep").load(places(tmp_path))
    assert task.choices == {
        "variant": "paper-code",
        "brackets": "keep",
        "max_tokens": 600,
        "readout_at": "last_position",
    }
    assert task.splits["test"].read(0, 1).inputs.shape == (1, 600)


@pytest.mark.parametrize("variant", ["repaired", "paper-code"])
def test_streamed_examples_equal_stored_ones(tmp_path: Path, variant: str) -> None:
    settings = listops(variant)
    stored = settings.load(places(tmp_path)).splits["train"].read(0, 300)
    rows = np.array([299, 0, 3, 255, 256])
    inputs, labels = settings.examples(0, "train", rows)
    width = stored.inputs.shape[1]
    np.testing.assert_array_equal(inputs[:, :width], stored.inputs[rows])
    assert not inputs[:, width:].any()
    np.testing.assert_array_equal(labels, stored.labels[rows])


def test_floors_are_the_known_ones(tmp_path: Path) -> None:
    task = listops("repaired", train=3000, test=1500).load(places(tmp_path))
    train = task.splits["train"]
    rules = {name: rule(train) for name, rule in task.rules.items()}
    found = scores({"majority class": majority(train, 10), **rules}, task.splits["test"])
    assert found["majority class"] == pytest.approx(0.17, abs=0.03)
    assert found["root operator only"] == pytest.approx(0.365, abs=0.03)


def test_lras_files_give_the_same_examples_as_the_generator_wrote_into_them(tmp_path: Path) -> None:
    generated = listops("repaired", train=30).load(places(tmp_path / "a"))
    lines = {}
    for name, part in (("train", "train"), ("validation", "val"), ("test", "test")):
        block = generated.splits[name].read(0, len(generated.splits[name]))
        assert block.lengths is not None
        rows = zip(block.inputs, block.lengths, block.labels, strict=True)
        lines[part] = [lra_line(ids[:length].tolist(), int(label[0])) for ids, length, label in rows]
    write_lra(tmp_path / "lra", lines)
    settings = listops("repaired", source="lra_files", folder=str(tmp_path / "lra"))
    read = settings.load(places(tmp_path / "b"))
    assert set(read.source["files"]) == {"basic_train.tsv", "basic_val.tsv", "basic_test.tsv"}
    for name, split in read.splits.items():
        theirs, ours = split.read(0, len(split)), generated.splits[name].read(0, len(split))
        np.testing.assert_array_equal(theirs.inputs, ours.inputs)
        np.testing.assert_array_equal(theirs.labels, ours.labels)


BAD_LINES = [
    (b"( ( [MAX 2 ) ] )\t3\r\n", "line 2: target 3, but the expression is 2"),
    (b"( ( [MAX 2 ) 9 )\t9\r\n", "line 2: 1 lists are not closed"),
    (b"( ( [AVG 2 ) ] )\t2\r\n", r"line 2: unknown token '\[AVG'"),
    (b"( ( [MAX 2 ) ] )\r\n", "line 2: 1 of 2 columns"),
    (b"( ( [MAX 2 ) ] )\t12\r\n", "line 2: target '12' is not one of 0 to 9"),
    (b"( ( [MAX \xff ) ] )\t2\r\n", "line 2: not UTF-8: invalid start byte at byte 9"),
]


@pytest.mark.parametrize(("line", "reason"), BAD_LINES)
def test_a_bad_line_is_named_or_skipped_and_listed(tmp_path: Path, line: bytes, reason: str) -> None:
    good = b"( ( [MAX 2 ) ] )\t2\r\n"
    write_lra(tmp_path, {"train": [line, good], "val": [good], "test": [good]})
    with pytest.raises(BrokenSource, match=f"basic_train.tsv, {reason}"):
        listops("repaired", source="lra_files", folder=str(tmp_path)).load(places(tmp_path / "a"))
    skipping = listops("repaired", source="lra_files", folder=str(tmp_path), on_bad_row="skip")
    task = skipping.load(places(tmp_path / "b"))
    assert len(task.splits["train"]) == 1
    assert task.counts["bad_rows"]["count"] == 1
    assert "basic_train.tsv, line 2" in task.counts["bad_rows"]["listed"][0]


def test_a_missing_file_and_a_wrong_header_are_named(tmp_path: Path) -> None:
    wanted = r"lacks basic_train.tsv, basic_val.tsv, basic_test.tsv\n.*they are part of https://.*lra_release.gz"
    with pytest.raises(MissingSource, match=wanted):
        listops("repaired", source="lra_files", folder=str(tmp_path)).load(places(tmp_path))
    write_lra(tmp_path, {"train": [], "val": [], "test": []})
    (tmp_path / "basic_train.tsv").write_bytes(b"Text\tLabel\r\n")
    with pytest.raises(BrokenSource, match=r"basic_train.tsv, line 1: the header is b'Text\\tLabel'"):
        listops("repaired", source="lra_files", folder=str(tmp_path)).load(places(tmp_path))
