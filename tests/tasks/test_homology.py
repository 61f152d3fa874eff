import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.tasks.faults import BrokenSource, MissingSource
from pipeline.tasks.homology import RemoteHomology, dropped_with_batch
from pipeline.tasks.places import Places
from pipeline.tasks.proteins import encode
from tests.tasks.files import TAPE_PARTS, RunsCode, protein, write_lmdb, write_tape_json, write_tape_lmdb

LETTERS = "ACDEFGHIKLMNPQRSTVWY"


def parts(rows: int = 12) -> dict[str, list[dict[str, Any]]]:
    random = np.random.default_rng(0)
    return {
        part: [
            protein("".join(random.choice(list(LETTERS), random.integers(3, 40))), int(random.integers(0, 1195)))
            for _ in range(rows)
        ]
        for part in TAPE_PARTS
    }


def places(folder: Path) -> Places:
    return Places(folder / "cache", folder / "work", offline=True)


def homology(folder: Path, variant: str = "paper", **changes: Any) -> RemoteHomology:
    return RemoteHomology("remote_homology", 0, variant, folder=str(folder), **changes)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("form", ["json", "lmdb"])
@pytest.mark.parametrize(("vocabulary", "extra"), [("letters", 0), ("iupac", 2)])
def test_json_and_lmdb_give_the_proteins_that_were_written(
    tmp_path: Path, form: str, vocabulary: str, extra: int
) -> None:
    written = parts()
    (write_tape_json if form == "json" else write_tape_lmdb)(tmp_path, written)
    task = homology(tmp_path, format=form, vocabulary=vocabulary).load(places(tmp_path))
    for name, part in (("train", "train"), ("validation", "valid"), ("test", "test_fold_holdout")):
        block = task.splits[name].read(0, 12)
        assert block.lengths is not None
        for row, example in enumerate(written[part]):
            assert block.lengths[row] == len(example["primary"]) + extra
            ids = block.inputs[row, : block.lengths[row]]
            np.testing.assert_array_equal(ids, encode(example["primary"], vocabulary))  # pyright: ignore[reportArgumentType]
            assert block.labels[row, 0] == example["fold_label"]
            assert not block.inputs[row, block.lengths[row] :].any()
    assert task.classes == 1195
    assert block.labels.dtype == np.uint16


@pytest.mark.parametrize("score_on", ["test_superfamily_holdout", "test_family_holdout"])
def test_every_holdout_can_be_the_test(tmp_path: Path, score_on: str) -> None:
    written = parts()
    write_tape_json(tmp_path, written)
    task = homology(tmp_path, format="json", score_on=score_on).load(places(tmp_path))
    labels = task.splits["test"].read(0, 12).labels[:, 0].tolist()
    assert labels == [example["fold_label"] for example in written[score_on]]


def test_the_code_scores_valid_and_validation_is_then_carved_from_train(tmp_path: Path) -> None:
    written = parts(60)
    write_tape_json(tmp_path, written)
    task = homology(tmp_path, "code", format="json", validation=0.2).load(places(tmp_path))
    assert task.choices["score_on"] == "valid"
    assert task.vocabulary == 30
    assert len(task.splits["train"]) + len(task.splits["validation"]) == 60
    assert 2 < len(task.splits["validation"]) < 25
    assert len(task.splits["test"]) == 60


def test_proteins_beyond_1024_tokens_are_dropped_one_by_one_and_counted(tmp_path: Path) -> None:
    written = parts(4)
    written["train"] += [protein("A" * 1024, 1), protein("A" * 1025, 2), protein("A" * 3000, 3)]
    write_tape_json(tmp_path, written)
    task = homology(tmp_path, format="json").load(places(tmp_path / "a"))
    assert task.counts["dropped_as_too_long"] == {"train": 2, "validation": 0, "test": 0}
    assert len(task.splits["train"]) == 5
    assert task.splits["train"].read(0, 1).inputs.shape == (1, 1024)
    with_specials = homology(tmp_path, format="json", vocabulary="iupac").load(places(tmp_path / "b"))
    assert with_specials.counts["dropped_as_too_long"]["train"] == 3


def test_the_codes_batch_wise_drop_takes_the_whole_batch_and_grows_with_it(tmp_path: Path) -> None:
    lengths = np.random.default_rng(0).integers(10, 500, 1008)
    lengths[[3, 500]] = 2000
    alone = dropped_with_batch(lengths, 1024, 1, seed=0)
    assert np.flatnonzero(alone).tolist() == [3, 500]
    for batch in (4, 16):
        drop = dropped_with_batch(lengths, 1024, batch, seed=0)
        assert drop[[3, 500]].all()
        assert drop.sum() in (batch, 2 * batch)
    written = parts(40)
    written["train"][7] = protein("A" * 2000, 0)
    write_tape_json(tmp_path, written)
    task = homology(tmp_path, "code", format="json", batch=8).load(places(tmp_path))
    assert task.counts["dropped_as_too_long"]["train"] == 8


def test_the_published_factor_stands_beside_and_inside_nothing(tmp_path: Path) -> None:
    write_tape_json(tmp_path, parts())
    assert homology(tmp_path, format="json").load(places(tmp_path)).choices["published_factor"] == 0.9739


BAD_EXAMPLES = [
    (protein("ACJ", 0), "row 1: letter 'J' at position 2 is not in the vocabulary"),
    (protein("", 0), "row 1: the sequence is empty"),
    (protein("ACD", 1195), "row 1: fold_label 1195 is not one of 0 to 1194"),
    (protein("ACD", -1), "row 1: fold_label -1 is not one of"),
    ({"primary": "ACD"}, "row 1: no field 'fold_label'"),
    ({"primary": 5, "fold_label": 0}, "row 1: primary is not text"),
    ({"primary": "ACD", "fold_label": "3"}, "row 1: fold_label is not a whole number"),
    ([1, 2], "row 1: a list where a dict is wanted"),
]


@pytest.mark.parametrize("form", ["json", "lmdb"])
@pytest.mark.parametrize(("example", "reason"), BAD_EXAMPLES)
def test_a_bad_protein_is_named_or_skipped_and_listed(tmp_path: Path, form: str, example: Any, reason: str) -> None:
    written = parts(3)
    path = tmp_path / f"remote_homology_train.{form}"
    written["train"][1] = example
    write_tape_json(tmp_path, written)
    for part, examples in written.items():
        write_lmdb(tmp_path / f"remote_homology_{part}.lmdb", [pickle.dumps(value) for value in examples])
    with pytest.raises(BrokenSource, match=f"{path}, {reason}"):
        homology(tmp_path, format=form).load(places(tmp_path / "a"))
    task = homology(tmp_path, format=form, on_bad_row="skip").load(places(tmp_path / "b"))
    assert len(task.splits["train"]) == 2
    assert task.counts["bad_rows"]["count"] == 1


def test_an_lmdb_value_that_tries_to_run_code_does_not_run(tmp_path: Path) -> None:
    write_tape_lmdb(tmp_path, parts(2) | {"train": []})
    trap = tmp_path / "ran"
    (tmp_path / "remote_homology_train.lmdb" / "data.mdb").unlink()
    values = [pickle.dumps(protein("ACD", 1)), pickle.dumps({"primary": RunsCode(trap), "fold_label": 1})]
    write_lmdb(tmp_path / "remote_homology_train.lmdb", values)
    with pytest.raises(BrokenSource, match=r"train.lmdb, row 1: refused: it names .*nothing of it was run"):
        homology(tmp_path).load(places(tmp_path / "a"))
    assert len(homology(tmp_path, on_bad_row="skip").load(places(tmp_path / "b")).splits["train"]) == 1
    assert not trap.exists()


@pytest.mark.parametrize(
    ("count", "reason"),
    [
        (5, "says num_examples 5 and holds 2"),
        ("2", "says num_examples '2'"),
        (RunsCode(Path("x")), "num_examples: refused"),
    ],
)
def test_an_lmdb_with_a_wrong_count_is_refused(tmp_path: Path, count: Any, reason: str) -> None:
    write_tape_lmdb(tmp_path, {part: rows for part, rows in parts(2).items() if part != "train"})
    write_lmdb(tmp_path / "remote_homology_train.lmdb", [pickle.dumps(protein("ACD", 1))] * 2, count)
    with pytest.raises(BrokenSource, match=reason):
        homology(tmp_path).load(places(tmp_path))


def test_damaged_files_are_named(tmp_path: Path) -> None:
    write_tape_lmdb(tmp_path, parts(2))
    (tmp_path / "remote_homology_train.lmdb" / "data.mdb").write_bytes(b"nonsense" * 1000)
    with pytest.raises(BrokenSource, match=r"remote_homology_train.lmdb is not a sound LMDB"):
        homology(tmp_path).load(places(tmp_path / "a"))
    write_tape_json(tmp_path, parts(2))
    path = tmp_path / "remote_homology_valid.json"
    path.write_text(json.dumps([protein("ACD", 1)])[:-5])
    with pytest.raises(BrokenSource, match=r"remote_homology_valid.json, row 0"):
        homology(tmp_path, format="json").load(places(tmp_path / "b"))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingSource, match=r"lacks remote_homology_train.lmdb, .*_test_fold_holdout.lmdb"):
        homology(tmp_path).load(places(tmp_path))
