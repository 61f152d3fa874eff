"""Tasks whose answers are numbers, from their source to the comparison, alone and beside a task of classes."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import load_file
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score

from pipeline.features import open_features
from pipeline.tasks.tokens import open_tokens
from stages import cache, compare, finetune, prepare, probe
from tests.tasks.test_protein_regression import proteins, write
from tests.test_every_task import OWN_TOKENIZER, PAIR, TEXT, WORDS, project, run

ARRAYS = "kind: arrays, seed: 0, inputs: patches, train: source/train.npz, validation: 0.2, test: 0.2, labels: numbers"


def write_numbers(folder: Path, answers: int = 1, constant: bool = False) -> None:
    """Patches whose sum over tokens tells each answer, in a unit far from 1."""
    folder.mkdir()
    random = np.random.default_rng(0)
    inputs = random.normal(size=(300, 5, 4)).astype(np.float32)
    targets = 500 + 20 * inputs.sum(axis=1)[:, :answers] + random.normal(size=(300, answers))
    targets = targets * 0 + 7.3 if constant else targets
    np.savez(folder / "train.npz", inputs=inputs, labels=targets[:, 0] if answers == 1 else targets)


def write_texts(folder: Path) -> None:
    """Texts that are as wet as they hold rain."""
    folder.mkdir()
    random = np.random.default_rng(0)
    texts = [random.choice(WORDS[2:], random.integers(1, 9)).tolist() for _ in range(300)]
    with (folder / "train.csv").open("w", newline="", encoding="utf-8") as file:
        rows = [(" ".join(words), 0.5 + 0.1 * words.count("rain")) for words in texts]
        csv.writer(file).writerows([("text", "label"), *rows])


def results() -> tuple[dict[str, Any], dict[str, Any]]:
    """The probes' and the fine-tune's metrics; JSON without NaN."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} in JSON")

    for path in Path("metrics").rglob("*.json"):
        json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    probed, tuned = (Path("metrics", stage, "it-tiny.json").read_text() for stage in ("probe", "finetune"))
    return json.loads(probed), json.loads(tuned)


def write_proteins(folder: Path) -> None:
    """TAPE's stability, where the share of A tells the score."""
    parts = {part: proteins("stability", rows, "list") for part, rows in (("train", 90), ("valid", 30), ("test", 30))}
    for example in (example for part in parts.values() for example in part):
        example["stability_score"] = [example["primary"].count("A") / 4]
    write(folder, "stability", parts, "json")


CASES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "one answer": (ARRAYS, write_numbers),
    "two answers": (ARRAYS, partial(write_numbers, answers=2)),
    "texts": (f"{TEXT}, {OWN_TOKENIZER}, labels: numbers", write_texts),
    "proteins": ("kind: stability, seed: 0, format: json, folder: source", write_proteins),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_regression_goes_from_its_source_to_the_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    entry, write_source = CASES[name]
    project(tmp_path, monkeypatch, entry)
    write_source(tmp_path / "source")
    assert "train mean R² -0." in run(prepare, "--task", "it")
    tokens = open_tokens(Path("data/tokens/it"))
    assert (tokens.classes, tokens.manifest["problem"], tokens.readout) == (0, "regression", 1)
    rules = {"length only"} if tokens.kind == "ids" else set()
    assert {*tokens.floors} == {"train mean", "linear model on raw inputs", *rules}
    assert tokens.floors["train mean"] <= 0 < tokens.floors["linear model on raw inputs"] <= 1
    run(cache, *PAIR)
    assert open_features("data/features/it-tiny").attributes["classes"] == 0
    printed = run(probe, *PAIR) + run(finetune, *PAIR)
    assert "ridge on layer final: test R² " in printed
    assert "finetune it-tiny: test R² " in printed
    probed, tuned = results()
    assert probed["method"] == "ridge"
    assert probed["test_r2"] > tokens.floors["train mean"]
    check_against_scikit_learn(probed)
    trained = load_file("data/finetuned/it-tiny.safetensors")
    np.testing.assert_allclose(trained["target_mean"], tokens.splits["train"].read_labels().mean(axis=0), rtol=1e-5)
    assert tuned["test_mse"] > 0
    with Path("metrics/curves/it-tiny.csv").open(encoding="utf-8") as file:
        points = list(csv.DictReader(file))
    best = min(points, key=lambda point: float(point["validation_loss"]))
    assert [*points[0]][-1] == "validation_r2"
    assert (int(best["step"]), float(best["validation_r2"])) == (tuned["best_step"], tuned["validation_r2"])
    table = run(compare)
    assert "test R²" in table
    assert "accuracy" not in table
    compared = json.loads(Path("metrics/compare.json").read_text())["it"]["tiny"]
    assert sorted(compared) == ["finetune", "knn", "ridge"]
    assert compared["ridge"]["r2"] == probed["test_r2"]
    assert compared["finetune"]["best_floor"] == max(tokens.floors.values())
    check_report(tokens.floors, tuned["test_r2"])
    assert "it is read at one token" in Path("data/attention/it-tiny/no-map.svg").read_text()


def check_against_scikit_learn(probed: dict[str, Any]) -> None:
    """The ridge probe is scikit-learn's on the same features."""
    store = open_features("data/features/it-tiny")
    x = {split: store.read(split)[:, 0, 0].astype(np.float64) for split in ("train", "test")}
    mean, spread = x["train"].mean(axis=0), x["train"].std(axis=0)
    spread[spread == 0] = np.inf  # a constant feature, as bfloat16 makes some
    model = Ridge(alpha=probed["penalty"] * len(x["train"]))
    model.fit((x["train"] - mean) / spread, store.labels("train"))
    guessed = model.predict((x["test"] - mean) / spread)
    wanted = r2_score(store.labels("test"), guessed, multioutput="variance_weighted")
    assert probed["test_r2"] == pytest.approx(wanted, abs=2e-3)


def check_report(floors: dict[str, float], tuned: float) -> None:
    """The report names the score, marks what is below the floor, and has no matrix of classes."""
    name, best = max(floors.items(), key=lambda floor: floor[1])
    lines = Path("report/table.md").read_text(encoding="utf-8").splitlines()
    assert lines[0].split(" | ")[3] == "test R²"
    (line,) = (line for line in lines if line.startswith("| it | tiny | full FPT fine-tune | R² "))
    assert line.split(" | ")[3] == f"R² {tuned:.3f}" + (" ▼" if tuned < best else "")
    assert all(f"| R² {best:.3f} ({name}) |" in line for line in lines[2:5])
    assert all(f"{floor} R² {score:.3f} (MSE " in "\n".join(lines) for floor, score in floors.items())
    assert not Path("report/confusion.png").exists()
    page = Path("report/index.html").read_text(encoding="utf-8")
    assert "Test R² against the seconds it took" in page
    assert "Test accuracy" not in page


@pytest.mark.slow
def test_targets_of_one_value_have_an_error_a_status_and_no_row_in_the_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(tmp_path, monkeypatch, ARRAYS)
    write_numbers(tmp_path / "source", constant=True)
    run(prepare, "--task", "it")
    task = json.loads(Path("metrics/tasks/it.json").read_text())
    assert (task["problem"], task["floors"]) == ("regression", {})
    assert task["floors_mse"]["train mean"] == pytest.approx(0, abs=1e-9)
    run(cache, *PAIR)
    run(probe, *PAIR)
    assert "test R² –" in run(finetune, *PAIR)
    probed, tuned = results()
    assert (probed["status"], probed["test_r2"]) == ("skipped: all answers are equal", None)
    assert (tuned["test_r2"], tuned["validation_r2"], tuned["test_interval"]) == (None, None, None)
    assert tuned["test_mse"] < 1
    done = CliRunner().invoke(compare.main, [])
    assert "error: no method has a score on test" in done.output


def test_float_labels_are_refused_until_the_entry_asks_for_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(tmp_path, monkeypatch, ARRAYS.replace(", labels: numbers", ""))
    write_numbers(tmp_path / "source")
    done = CliRunner().invoke(prepare.main, ["--task", "it"])
    assert done.exit_code == 1
    assert "dtype float64 are not classes" in done.output
    assert "to mend: set labels: numbers in the task's entry" in done.output
