"""Pretraining on bit memory: a folder comes out that a backbone's entry can name."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from pipeline.backbones.export import places_in_checkpoint, write_backbone
from pipeline.backbones.load import find_backbone
from pipeline.backbones.settings import PathSource, RandomSource
from pipeline.errors import PermafrostError
from pipeline.identity import file_digests
from tests.architectures import CONFIGS, write_reference
from tests.backbones.test_lstm import PLAIN
from tests.tiny import PARAMS, backbone, environment, run, write_project

BIT_MEMORY = "{kind: bit_memory, seed: 0, train: 0, validation: 32, test: 32, patterns: 2, bits: 8, patch: 4}"
PROJECT = (
    PARAMS.replace("pretrain: []", "pretrain: [tiny-random]")
    .replace("tasks:\n  xor", f"tasks:\n  bit_memory: {BIT_MEMORY}\n  xor")
    .replace("backbones: [tiny, tiny-random]", "backbones: [bits]")
    .replace("cache:\n", "  bits: {source: path, path: data/pretrained/tiny-random}\ncache:\n")
)
PYTHON = [sys.executable, "-m"]


@pytest.mark.parametrize("family", [name for name in CONFIGS if name != "vit"])
def test_what_is_written_is_what_is_read_back(tmp_path, family):
    write_reference(tmp_path / "like", CONFIGS[family])
    like = PathSource("path", str(tmp_path / "like"))
    found = find_backbone(RandomSource(source="random", like=like, seed=5, std=0.5))
    weights = found.load().state_dict()
    sha256 = write_backbone(found, weights, tmp_path / "out")
    again = find_backbone(PathSource("path", str(tmp_path / "out"), sha256))
    assert again.spec == found.spec
    read = again.load().state_dict()
    assert read.keys() == weights.keys()
    assert all(torch.equal(read[name], weights[name]) for name in weights)
    written, known = (load_file(tmp_path / part / "model.safetensors") for part in ("out", "like"))
    assert all(written[name].shape == known[name].shape for name in written)
    with pytest.raises(PermafrostError):
        again.load_embedding()


def test_what_no_folder_could_hold_is_refused(tiny_bert, tmp_path):
    like = PathSource("path", str(tiny_bert))
    for source in (PLAIN, RandomSource(source="random", like=like, seed=0, layers=1)):
        with pytest.raises(PermafrostError, match="only a whole transformer can be handed on"):
            places_in_checkpoint(find_backbone(source))
    write_reference(tmp_path, CONFIGS["vit"])
    with pytest.raises(PermafrostError, match="a checkpoint of vit does not hold position"):
        places_in_checkpoint(backbone(tmp_path))


@pytest.fixture
def project(tmp_path):
    folder = write_project(tmp_path / "project", PROJECT)
    run(folder, "dvc", "config", "--local", "core.no_scm", "true")
    return folder


@pytest.mark.slow
def test_a_pretrained_network_is_a_backbone_like_any_other(project):
    printed = run(project, "dvc", "repro", "pretrain@tiny-random").stdout
    folder = project / "data/pretrained/tiny-random"
    assert "{source: path, path: data/pretrained/tiny-random, sha256: " in printed
    drawn = find_backbone(RandomSource(source="random", like=PathSource("path", str(project / "tiny-bert")), seed=0))
    before, after = drawn.load().state_dict(), backbone(folder).load().state_dict()
    still = {name for name in before if torch.equal(before[name], after[name])}
    assert still == set(), "everything trains"
    run(project, "dvc", "repro", "prepare@xor", "cache@xor-bits", "probe@xor-bits", "finetune@xor-bits")
    metrics = json.loads((project / "metrics/finetune/xor-bits.json").read_text())
    assert metrics["test_accuracy"] > 0
    assert "up to date" in run(project, "dvc", "repro", "pretrain@tiny-random").stdout


@pytest.mark.slow
def test_killed_in_the_middle_it_goes_on_to_the_same_bytes(project):
    command = [*PYTHON, "stages.pretrain", "--backbone", "tiny-random", "--checkpoint-every", "5"]
    run(project, *command)
    wanted = file_digests(project / "data/pretrained/tiny-random")
    process = subprocess.Popen(command, cwd=project, env=environment(), stderr=subprocess.PIPE, text=True)
    with process:
        assert process.stderr
        for line in process.stderr:
            if "20/40" in line:
                break
        os.kill(process.pid, signal.SIGKILL)
    assert list((project / ".permafrost/pretrain").rglob("*.pt")), "it was killed before its end"
    run(project, *command)
    assert file_digests(project / "data/pretrained/tiny-random") == wanted
