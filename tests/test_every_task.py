"""Every kind of task from its source to the comparison: prepare, cache, probe, finetune, compare, on small sizes."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from pipeline.features import open_features
from pipeline.tasks.listops_generator import draw_block
from pipeline.tasks.mnist import DEBIAN_FASHION
from pipeline.tasks.tokens import Tokens, open_tokens
from stages import cache, compare, finetune, prepare, probe
from tests.tasks.files import (
    TAPE_PARTS,
    lra_line,
    protein,
    write_cifar,
    write_lra,
    write_mnist,
    write_tape_json,
    write_tape_lmdb,
)
from tests.tiny import PARAMS, write_bert, write_tokenizer

pytestmark = pytest.mark.slow

RANDOM = np.random.default_rng(0)
WORDS = ("ice", "snow", "rain", "sun", "wind", "fog", "hail")
PAIR = ("--task", "it", "--backbone", "tiny")
METHODS = ["finetune", "knn", "logistic", "ridge", "sgd"]


def nothing(folder: Path) -> None:
    """The task makes its own data."""


def lra_files(folder: Path) -> None:
    """LRA's three files, with expressions of the generator."""
    lines = {}
    for part, count in (("train", 24), ("val", 6), ("test", 8)):
        block = draw_block(0, part, 0)
        parts = np.split(block.ids, np.cumsum(block.lengths)[:-1])[:count]
        lines[part] = [lra_line(ids.tolist(), int(value)) for ids, value in zip(parts, block.values, strict=False)]
    write_lra(folder, lines)


def text_file(folder: Path) -> None:
    """Texts whose first word is their label."""
    folder.mkdir()
    with (folder / "train.csv").open("w", newline="", encoding="utf-8") as file:
        rows = [(int(RANDOM.integers(2)), RANDOM.choice(WORDS[2:], RANDOM.integers(0, 9))) for _ in range(300)]
        csv.writer(file).writerows(
            [("text", "label"), *((" ".join([WORDS[label], *rest]), ["cold", "white"][label]) for label, rest in rows)]
        )


def patch_arrays(folder: Path) -> None:
    """Patches with one feature that tells the label."""
    folder.mkdir()
    labels = RANDOM.integers(0, 3, 300)
    inputs = RANDOM.normal(0, 0.3, (300, 5, 4)).astype(np.float32)
    inputs[:, :, 0] += labels[:, None]
    np.savez(folder / "train.npz", inputs=inputs, labels=labels)


def id_arrays(folder: Path) -> None:
    """Ids of unequal length whose first tells the label."""
    folder.mkdir()
    labels = RANDOM.integers(0, 3, 300)
    inputs = RANDOM.integers(3, 9, (300, 6)).astype(np.uint16)
    inputs[:, 0] = labels
    for name, values in (("inputs", inputs), ("labels", labels), ("lengths", RANDOM.integers(1, 7, 300))):
        np.save(folder / f"{name}.npy", values)


def mnist_files(folder: Path) -> None:
    """MNIST's four files."""
    write_mnist(folder, train=60, test=20)


def cifar_files(folder: Path) -> None:
    """CIFAR-10's six batches."""
    write_cifar(folder, rows=12)


def proteins_of(rows: int) -> list[dict[str, Any]]:
    """Proteins of 30 to 60 letters in three folds."""
    letters = list("ACDEFGHIKLMNPQRSTVWY")
    return [protein("".join(RANDOM.choice(letters, RANDOM.integers(30, 60))), row % 3) for row in range(rows)]


def tape_json(folder: Path) -> None:
    """TAPE's raw files."""
    write_tape_json(folder, {part: proteins_of(24) for part in TAPE_PARTS})


def tape_lmdb(folder: Path) -> None:
    """TAPE's LMDB."""
    write_tape_lmdb(folder, {part: proteins_of(24) for part in TAPE_PARTS})


LISTOPS = "kind: listops, seed: 0, train: 24, validation: 6, test: 8"
TAPE = "kind: remote_homology, seed: 0, folder: source"
TEXT = "kind: text, seed: 0, train: source/train.csv, validation: 0.2, test: 0.2, max_tokens: 12"
OWN_TOKENIZER = "tokenizer: {backbone: tiny, folder: tiny-bert}"
needs_fashion = pytest.mark.skipif(not DEBIAN_FASHION.is_dir(), reason="dataset-fashion-mnist is not installed")

# entry in params.yaml, what writes its source, inputs' shape without examples, floors beside majority and linear
CASES: dict[str, tuple[str, Callable[[Path], None], tuple[int, ...], set[str]]] = {
    "bit_xor": (
        "kind: bit_xor, seed: 0, bits: 3, split: unseen, validation: 0.2, test: 0.2",
        nothing,
        (6, 1),
        {"copy the last string"},
    ),
    "bit_memory": (
        "kind: bit_memory, seed: 0, bits: 20, patch: 5, train: 60, validation: 20, test: 40",
        nothing,
        (24, 5),
        {"copy what is visible, guess the rest"},
    ),
    "digits": ("kind: digits, seed: 0, patch: 4, validation: 0.2, test: 0.2", nothing, (4, 16), {"mean brightness"}),
    "listops_paper_code": (f"{LISTOPS}, variant: paper-code", nothing, (512,), {"root operator only"}),
    "listops_repaired": (f"{LISTOPS}, variant: repaired", nothing, (), {"root operator only"}),
    "listops_lra_paper_code": (
        "kind: listops, seed: 0, variant: paper-code, source: lra_files, folder: source",
        lra_files,
        (512,),
        {"root operator only"},
    ),
    "listops_lra_repaired": (
        "kind: listops, seed: 0, variant: repaired, source: lra_files, folder: source",
        lra_files,
        (),
        {"root operator only"},
    ),
    "mnist_paper": (
        "kind: mnist, seed: 0, variant: paper, folder: source",
        mnist_files,
        (64, 16),
        {"mean brightness"},
    ),
    "mnist_code": ("kind: mnist, seed: 0, variant: code, folder: source", mnist_files, (49, 16), {"mean brightness"}),
    "cifar10_paper": (
        "kind: cifar10, seed: 0, variant: paper, folder: source",
        cifar_files,
        (64, 16),
        {"mean brightness"},
    ),
    "cifar10_code": (
        "kind: cifar10, seed: 0, variant: code, folder: source",
        cifar_files,
        (64, 48),
        {"mean brightness"},
    ),
    "cifar10_lra": (
        "kind: cifar10, seed: 0, variant: lra, folder: source",
        cifar_files,
        (1024, 1),
        {"mean brightness"},
    ),
    "cifar10_lra_ids": (
        "kind: cifar10, seed: 0, variant: lra_ids, folder: source",
        cifar_files,
        (1024,),
        {"mean brightness"},
    ),
    "homology_json_paper": (f"{TAPE}, variant: paper, format: json", tape_json, (), {"length only"}),
    "homology_lmdb_code": (f"{TAPE}, variant: code, format: lmdb, validation: 0.3", tape_lmdb, (), {"length only"}),
    "text": (f"{TEXT}, {OWN_TOKENIZER}", text_file, (), {"length only"}),
    "arrays_patches": ("kind: arrays, seed: 0, inputs: patches, train: source/train.npz", patch_arrays, (5, 4), set()),
    "arrays_ids": ("kind: arrays, seed: 0, inputs: ids, train: source", id_arrays, (6,), {"length only"}),
    "fashion_mnist": (
        "kind: fashion_mnist, seed: 0, variant: paper",
        nothing,
        (64, 16),
        {"mean brightness"},
    ),
}
EASY = {"bit_memory", "digits", "text", "arrays_patches", "arrays_ids"}
"""Tasks whose answer is plain to see, so that a probe that does no better than the majority is broken."""


def run(stage: Any, *options: str) -> str:
    """Run a stage's command here and now; its output."""
    done = CliRunner().invoke(stage.main, [*options])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


def project(folder: Path, monkeypatch: pytest.MonkeyPatch, entry: str) -> None:
    """A folder with params.yaml of one task `it` and one backbone that reads up to 2000 tokens."""
    params = PARAMS.replace("tasks: [xor]", "tasks: [it]").replace(
        "backbones: [tiny, tiny-random]", "backbones: [tiny]"
    )
    lines = [f"  it: {{{entry}}}" if line.startswith("  xor:") else line for line in params.splitlines()]
    text = "\n".join(lines).replace("batch_tokens: 48", "batch_tokens: 4096").replace("bytes: 1536", "bytes: 65536")
    (folder / "params.yaml").write_text(text.replace("batch_size: 8", "batch_size: 2"))
    write_tokenizer(write_bert(folder / "tiny-bert", seed=0, max_position_embeddings=2000), WORDS)
    (folder / "metrics").mkdir()
    (folder / "metrics/programs.json").write_text("[]")
    monkeypatch.chdir(folder)


def check_tokens(tokens: Tokens, shape: tuple[int, ...], rules: set[str]) -> None:
    """Sizes and floors are those of the task."""
    assert not shape or tokens.splits["train"].inputs.shape[1:] == shape
    assert {*tokens.floors} == {"majority class", "linear model on raw inputs", *rules}
    assert all(0 <= score <= 1 for score in tokens.floors.values())
    assert all(len(split) > 0 for split in tokens.splits.values())


def check_features(tokens: Tokens) -> None:
    """Every example has its features, and equal inputs have the same row."""
    store = open_features("data/features/it-tiny")
    for name, split in tokens.splits.items():
        assert len(store.rows(name)) == len(split)
        np.testing.assert_array_equal(store.labels(name), split.read_labels())
    distinct = {row.tobytes() for split in tokens.splits.values() for row in np.asarray(split.content[:])}
    assert store.shape[0] == len(distinct)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=needs_fashion if name == "fashion_mnist" else ()) for name in CASES]
)
def test_a_task_goes_from_its_source_to_the_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    entry, write_source, shape, rules = CASES[name]
    project(tmp_path, monkeypatch, entry)
    write_source(tmp_path / "source")
    run(prepare, "--task", "it", "--offline")
    tokens = open_tokens(Path("data/tokens/it"))
    check_tokens(tokens, shape, rules)
    run(cache, *PAIR)
    check_features(tokens)
    run(probe, *PAIR)
    run(finetune, *PAIR)
    printed = run(compare)
    found = json.loads(Path("metrics/compare.json").read_text())["it"]["tiny"]
    assert sorted(found) == METHODS
    for one in found.values():
        assert 0 <= one["accuracy"] <= 1
        assert one["best_floor"] == max(tokens.floors.values())
        assert one["flops"] > 0
    assert printed.count(f"{max(tokens.floors.values()):.3f} (") == len(METHODS)
    table = Path("report/table.md").read_text(encoding="utf-8")
    assert all(f"{choice} {value}" in table for choice, value in tokens.choices.items())
    assert all(f"{floor} {score:.3f}" in table for floor, score in tokens.floors.items())
    if name in EASY:
        assert found["ridge"]["accuracy"] > tokens.floors["majority class"] + 0.1


@pytest.mark.parametrize(
    ("held_out", "named"), [("validation: 0.0, test: 0.0", "validation and test"), ("validation: 0.0", "validation")]
)
def test_what_is_not_held_out_is_cached_and_probed_and_the_fine_tune_says_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held_out: str, named: str
) -> None:
    project(tmp_path, monkeypatch, f"kind: arrays, seed: 0, inputs: patches, train: source/train.npz, {held_out}")
    patch_arrays(tmp_path / "source")
    run(prepare, "--task", "it")
    run(cache, *PAIR)
    run(probe, *PAIR)
    done = CliRunner().invoke(finetune.main, PAIR)
    assert done.exit_code == 1
    assert f"it has no examples in {named}: the fine-tune trains" in done.output


def test_an_augmented_task_is_fine_tuned_and_no_cache_of_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = CASES["cifar10_paper"][0] + ", augment: crop_flip_rotate"
    project(tmp_path, monkeypatch, entry)
    cifar_files(tmp_path / "source")
    run(prepare, "--task", "it")
    done = CliRunner().invoke(cache.main, PAIR)
    assert done.exit_code == 1
    assert "it is augmented (crop_flip_rotate): no image is seen twice, so nothing can be cached" in done.output
    assert not Path("data/features").exists()
    run(finetune, *PAIR)
