"""TAPE's regression tasks, on files as TAPE writes them."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.tasks.faults import BrokenSource, MissingSource
from pipeline.tasks.places import Places
from pipeline.tasks.protein_regression import FIELDS, ProteinRegression
from pipeline.tasks.proteins import encode
from tests.tasks.files import write_lmdb

RANDOM = np.random.default_rng(0)
FORMS = {"list": lambda value: [value], "number": lambda value: value, "array": lambda value: np.array([value], "f4")}


def proteins(kind: str, rows: int, form: str) -> list[dict[str, Any]]:
    """Examples with the fields that TAPE has, the target in a list of one."""
    letters = list("ACDEFGHIKLMNPQRSTVWY")
    return [
        {
            "primary": "".join(RANDOM.choice(letters, RANDOM.integers(5, 20))),
            "protein_length": 12,
            FIELDS[kind]: FORMS[form](float(np.float32(RANDOM.normal()))),
            "id": "7",
        }
        for _ in range(rows)
    ]


def write(folder: Path, kind: str, parts: dict[str, list[dict[str, Any]]], form: str) -> None:
    """The three files of a task."""
    folder.mkdir(exist_ok=True)
    for part, examples in parts.items():
        if form == "json":
            (folder / f"{kind}_{part}.json").write_text(json.dumps(examples), encoding="utf-8")
        else:
            write_lmdb(folder / f"{kind}_{part}.lmdb", [pickle.dumps(example) for example in examples])


def task(folder: Path, kind: str, **changes: Any) -> ProteinRegression:
    return ProteinRegression(kind, 0, folder=str(folder), **changes)  # pyright: ignore[reportArgumentType]


def places(folder: Path) -> Places:
    return Places(folder / "cache", folder / "work", offline=True)


@pytest.mark.parametrize("kind", FIELDS)
@pytest.mark.parametrize(
    ("form", "target"), [("json", "list"), ("json", "number"), ("lmdb", "list"), ("lmdb", "array")]
)
def test_targets_are_the_numbers_that_were_written(tmp_path: Path, kind: str, form: str, target: str) -> None:
    written = {part: proteins(kind, rows, target) for part, rows in (("train", 9), ("valid", 4), ("test", 5))}
    write(tmp_path / "tape", kind, written, form)
    data = task(tmp_path / "tape", kind, format=form).load(places(tmp_path))
    assert (data.classes, data.source["name"]) == (0, f"TAPE {kind}")
    for name, part in (("train", "train"), ("validation", "valid"), ("test", "test")):
        block = data.splits[name].read(0, len(written[part]))
        wanted = [float(np.ravel(example[FIELDS[kind]])[0]) for example in written[part]]
        np.testing.assert_array_equal(block.labels[:, 0], np.array(wanted, np.float32))
        assert block.lengths is not None
        for ids, length, example in zip(block.inputs, block.lengths, written[part], strict=True):
            np.testing.assert_array_equal(ids[:length], encode(example["primary"], "letters"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"log_fluorescence": [float("nan")]}, "row 1: label nan is not finite in float32"),
        ({"log_fluorescence": [1.0, 2.0]}, r"row 1: label \[1.0, 2.0\] is not a number"),
        ({"log_fluorescence": None}, "row 1: label None is not a number"),
        ({"primary": "AC1"}, "row 1: letter '1'"),
        ({"primary": 5}, "row 1: primary is not text"),
    ],
)
def test_a_bad_protein_is_named_or_skipped(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    written = {part: proteins("fluorescence", 3, "list") for part in ("train", "valid", "test")}
    written["train"][1] |= change
    write(tmp_path / "tape", "fluorescence", written, "json")
    with pytest.raises(BrokenSource, match=f"fluorescence_train.json, {reason}"):
        task(tmp_path / "tape", "fluorescence", format="json").load(places(tmp_path / "a"))
    data = task(tmp_path / "tape", "fluorescence", format="json", on_bad_row="skip").load(places(tmp_path / "b"))
    assert (len(data.splits["train"]), data.counts["bad_rows"]["count"]) == (2, 1)


def test_missing_files_are_named_with_where_they_are_published(tmp_path: Path) -> None:
    with pytest.raises(MissingSource, match=r"stability_train.lmdb(.|\n)*data_pytorch/stability.tar.gz"):
        task(tmp_path, "stability").load(places(tmp_path))
