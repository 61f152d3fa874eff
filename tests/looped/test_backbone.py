"""The machine as a backbone: its loops are layers of the engine, read into the store, and a probe reads them back."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from pipeline.backbones.load import find_backbone
from pipeline.backbones.settings import LoopedSource
from pipeline.errors import PermafrostError
from pipeline.extraction.engine import Where, extract, plan_extraction
from pipeline.extraction.forward import Reader
from pipeline.extraction.sources import find_source
from pipeline.features import open_features
from pipeline.looped.__main__ import layer_accuracies
from pipeline.looped.__main__ import main as looped
from pipeline.looped.layout import Layout, from_bits
from pipeline.looped.oracle import subleq_states
from pipeline.tasks.looped_states import LoopedStates
from pipeline.tasks.tokens import open_tokens
from pipeline.tasks.writing import write_tokens
from stages.cache import main as cache
from stages.prepare import main as prepare
from stages.probe import main as probe
from tests.tiny import PARAMS, cache_settings

SUBLEQ = LoopedSource(source="looped", cells=3, code=5, word_bits=4, loops=3)
WIDE = LoopedSource(source="looped", cells=3, code=5, word_bits=9, loops=1)
CPU = torch.device("cpu")


def states(ask: str, **changes) -> LoopedStates:
    sizes = {"cells": 3, "code": 5, "word_bits": 4, "train": 40, "validation": 10, "test": 10, "after": 3}
    return LoopedStates(kind="looped_states", seed=0, ask=ask, **(sizes | changes))


def test_every_layer_of_every_loop_is_what_the_network_computes() -> None:
    inputs = torch.from_numpy(states("memory").examples(0, "train", np.arange(20))[0].astype(np.float32))
    backbone = find_source(SUBLEQ)
    names = tuple(str(layer) for layer in range(13))
    for dtype in (torch.float32, torch.bfloat16):
        reader = Reader(torch.nn.Identity(), backbone.load_frozen(), (*names, "final"), ("all",), dtype)
        found = reader.read(inputs, torch.full((20,), inputs.shape[1]), 3)
        x = inputs
        for loop in range(3):
            layers, x = backbone.spec.network().hidden_states(x)
            assert torch.equal(found[:, :, 4 * loop : 4 * loop + 5], layers)
        assert torch.equal(found[:, :, 13], x)


def test_cached_states_hold_the_interpreters_counter_and_memory(tmp_path: Path) -> None:
    """One program's row of the store, decoded by hand: the scratch column stands last, the cells before it."""
    task = states("counter")
    write_tokens(tmp_path / "tokens", "counter", asdict(task), task.load(), {})
    backbone, where = find_source(SUBLEQ), Where(CPU, tmp_path / "work")
    settings = cache_settings(layers=("all",), readout="all")
    extract(plan_extraction(open_tokens(tmp_path / "tokens"), backbone, settings, {}), tmp_path / "features", where)
    store = open_features(tmp_path / "features")
    assert store.manifest["fidelity"]["relative_error"]["12"] == 0.0
    rows = Layout(backbone.spec.sizes).rows
    for example, program in enumerate(task.programs(0, "test", np.arange(10))):
        found = torch.from_numpy(store.read("test", rows=[example])[0])
        for (counter, memory), layer in zip(subleq_states(program), (0, 4, 8, 12), strict=False):
            assert from_bits(found[-1, layer, rows.cut("PC")], signed=False) == 1 + 4 + counter
            assert from_bits(found[:3, layer, rows.cut("MEM")], signed=True).tolist() == memory[:3]


def test_only_its_own_states_are_read(tmp_path: Path, tiny_tokens: Path) -> None:
    write_tokens(tmp_path / "larger", "t", {}, states("counter", code=6).load(), {})
    for path, shape in ((tmp_path / "larger", r"\(11, 62\)"), (tiny_tokens, r"\(\d+, 1\)")):
        with pytest.raises(PermafrostError, match=rf"patches of shape {shape}; .*states, of shape \(10, 62\)"):
            plan_extraction(open_tokens(path), find_source(SUBLEQ), cache_settings(), {})


def test_words_that_bfloat16_cannot_hold_are_refused(tmp_path: Path) -> None:
    task = states("memory", word_bits=9)
    write_tokens(tmp_path / "tokens", "t", {}, task.load(), {})
    tokens, where = open_tokens(tmp_path / "tokens"), Where(CPU, tmp_path / "work")
    narrow = plan_extraction(tokens, find_source(WIDE), cache_settings(compute_dtype="bfloat16"), {})
    with pytest.raises(PermafrostError, match=r"9-bit words do not fit bfloat16(.|\n)*cache\.compute_dtype: float32"):
        extract(narrow, tmp_path / "features", where)
    extract(plan_extraction(tokens, find_source(WIDE), cache_settings(), {}), tmp_path / "features", where)
    assert open_features(tmp_path / "features").layers == ["final"]


def test_identity_names_sizes_loops_and_weights() -> None:
    base = find_source(SUBLEQ).weights
    assert base == find_source(SUBLEQ).weights
    others = [{"code": 6}, {"word_bits": 5}, {"loops": 2}]
    for change in others:
        assert find_source(LoopedSource(**(vars(SUBLEQ) | change))).weights != base


def test_the_fine_tune_refuses_it() -> None:
    with pytest.raises(PermafrostError, match="the looped transformer has nothing to train"):
        find_backbone(SUBLEQ)


ASKED = {"counter": 8, "memory": 8, "difference": 7}
"""Where each answer can be read: behind the second loop, and behind its subtraction."""


def looped_params() -> str:
    sizes = "cells: 2, code: 4, word_bits: 3"
    examples = "seed: 0, after: 2, train: 300, validation: 60, test: 100"
    tasks = [f"  {ask}: {{kind: looped_states, ask: {ask}, {sizes}, {examples}}}" for ask in ASKED]
    backbone = f"  machine: {{source: looped, {sizes}, loops: 2}}"
    changes = {
        "\ntasks:": "\n".join(["\ntasks:", *tasks]),
        "\nbackbones:": f"\nbackbones:\n{backbone}",
        "[final]": "[all]",
        "shard_bytes: 1536": "shard_bytes: 1048576",
        "[logistic, ridge, knn, sgd]": "[ridge]",
    }
    params = PARAMS
    for old, new in changes.items():
        params = params.replace(old, new)
    return params


@pytest.mark.parametrize(
    "ask", ["difference", *(pytest.param(ask, marks=pytest.mark.slow) for ask in ("counter", "memory"))]
)
def test_a_probe_on_the_store_reads_counter_memory_and_where_the_subtraction_happens(
    ask: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """prepare, cache and probe, as `dvc repro probe@memory-machine` runs them."""
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(looped_params())
    for stage, options in ((prepare, []), (cache, ["--backbone", "machine"]), (probe, ["--backbone", "machine"])):
        done = CliRunner().invoke(stage, ["--task", ask, *options], catch_exceptions=False)
        assert done.exit_code == 0, done.output
    metrics = f"metrics/probe/{ask}-machine.json"
    accuracy = layer_accuracies(Path(metrics))
    best = ASKED[ask]
    assert accuracy[best] == 1.0
    assert max(accuracy[:5]) < 0.9, "nothing of the last loop is known before it"
    if ask == "difference":
        assert max(accuracy[:best] + accuracy[best + 1 :]) < 0.95
    drawn = CliRunner().invoke(looped, ["layers", metrics, "layers.png"], catch_exceptions=False)
    assert drawn.exit_code == 0
    assert Path("layers.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[]", "does not hold the layers of a probe"),
        ('{"method": "ridge", "layers": {"final": {"ridge": {"test_accuracy": 1.0}}}}', r"holds layers \['final'\]"),
        ('{"method": "ridge", "layers": {"2": {"ridge": {"test_accuracy": 1.0}}}}', r"holds layers \[2\], not all"),
        ('{"method": "ridge", "layers": {"0": {"ridge": {"test_accuracy": null}}}}', "does not hold the layers"),
    ],
)
def test_the_picture_needs_every_layer(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "metrics.json"
    path.write_text(content)
    done = CliRunner().invoke(looped, ["layers", str(path), str(tmp_path / "picture.png")], catch_exceptions=False)
    assert done.exit_code == 1
    assert re.search(reason, done.output)
    assert not (tmp_path / "picture.png").exists()
