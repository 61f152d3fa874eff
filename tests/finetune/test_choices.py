"""Learning rates, plateaus, augmentation and several processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from pipeline.errors import PermafrostError
from pipeline.finetune.batches import load_split
from pipeline.finetune.loop import Work, finetune
from pipeline.finetune.training import NotFinite
from pipeline.tasks.task import Split, TaskData
from pipeline.tasks.tokens import open_tokens
from pipeline.tasks.writing import write_tokens
from tests.finetune.recipe import CPU, settings
from tests.imports import ROOT
from tests.tiny import PARAMS, backbone, environment, run, write_project


def test_the_learning_rate_that_is_best_on_validation_counts(tokens, tiny_bert, tmp_path):
    recipe = settings(lr_sweep=(1e-6, 1e-2), steps=120, evaluate_every=40, frozen_dropout=False)
    swept = finetune(tokens, backbone(tiny_bert), recipe, CPU, "k", Work(tmp_path, 100))
    alone = finetune(tokens, backbone(tiny_bert), replace(recipe, lr_sweep=None, lr=1e-2), CPU, "k")
    assert swept.metrics["lr"] == 1e-2
    assert swept.metrics["validation_accuracy_by_lr"]["0.01"] == swept.metrics["validation_accuracy"]
    assert swept.metrics["test_accuracy"] == alone.metrics["test_accuracy"]
    assert swept.curve == alone.curve


def test_a_rate_that_diverges_is_out_and_the_cost_is_that_of_all(tokens, tiny_bert):
    recipe = settings(steps=12, evaluate_every=6)
    swept = finetune(tokens, backbone(tiny_bert), replace(recipe, lr_sweep=(1e30, 1e-2, 1e-3)), CPU, "k")
    alone = finetune(tokens, backbone(tiny_bert), recipe, CPU, "k")
    by_rate = swept.metrics["validation_accuracy_by_lr"]
    assert by_rate["1e+30"] is None
    assert by_rate["0.01"] is not None
    assert 2 * alone.cost.flops < swept.cost.flops < 2.5 * alone.cost.flops
    assert 2 * alone.tokens < swept.tokens < 2.5 * alone.tokens
    with pytest.raises(NotFinite, match=r"at step 2[\s\S]*finetune.lr_sweep"):
        finetune(tokens, backbone(tiny_bert), replace(recipe, lr_sweep=(1e30,)), CPU, "k")


def test_it_stops_when_validation_no_longer_gets_better(tokens, tiny_bert):
    recipe = settings(steps=200, evaluate_every=1, patience=3, lr=3e-2)
    metrics = finetune(tokens, backbone(tiny_bert), recipe, CPU, "k").metrics
    assert metrics["steps"] < 200
    assert metrics["steps"] == metrics["best_step"] + 3


def images(augment):
    rng = np.random.default_rng(0)

    def split(examples):
        return Split.of(rng.integers(0, 256, (examples, 4, 16), np.uint8), rng.integers(0, 2, (examples, 1)))

    splits = {name: split(20) for name in ("train", "validation", "test")}
    image = {"side": 8, "channels": 1, "patch": 4}
    return TaskData("patches", 2, 1, splits, {}, scale=1 / 255, image=image, augment=augment)


def test_train_images_are_augmented_anew_each_step_and_only_where_the_task_says_so(tmp_path):
    rows = np.arange(5)
    for augment in (None, "crop_flip_rotate"):
        write_tokens(tmp_path / "images", "images", {}, images(augment), {})
        tokens = open_tokens(tmp_path / "images")
        train, validation = (load_split(tokens, name, 0, CPU) for name in ("train", "validation"))
        first, again, later = (train.pick(rows, step)[0] for step in (1, 1, 2))
        assert first.equal(again)
        assert first.equal(later) is (augment is None)
        assert first.equal(train.inputs[:5]) is (augment is None)
        assert first.dtype == train.inputs.dtype
        assert float(first.max()) <= 1
        assert validation.pick(rows, 1)[0].equal(validation.inputs[:5])


WORKER = """
import json, sys
from pathlib import Path
from pipeline.finetune.loop import finetune
from pipeline.tasks.tokens import open_tokens
from tests.finetune.recipe import CPU, settings
from tests.tiny import backbone
from accelerate import PartialState
recipe = settings(input_dropout=0.0, frozen_dropout=False)
result = finetune(open_tokens(Path(sys.argv[1])), backbone(Path(sys.argv[2])), recipe, CPU, "k")
state = PartialState()
assert state.num_processes == 2
Path(sys.argv[3], str(state.process_index)).write_text(json.dumps([vars(point) for point in result.curve]))
state.destroy_process_group()
"""


@pytest.mark.slow
def test_two_processes_train_as_one_does(tiny_tokens, tiny_bert, tmp_path):
    (tmp_path / "worker.py").write_text(WORKER)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    arguments = [tmp_path / "worker.py", tiny_tokens, tiny_bert, tmp_path]
    run(ROOT, *command, *map(str, arguments), PYTHONPATH=str(ROOT), OMP_NUM_THREADS="1", ACCELERATE_USE_CPU="true")
    alone = finetune(
        open_tokens(tiny_tokens), backbone(tiny_bert), settings(input_dropout=0.0, frozen_dropout=False), CPU, "k"
    )
    curves = [json.loads((tmp_path / str(index)).read_text()) for index in range(2)]
    assert curves[0] == curves[1]
    for point, wanted in zip(curves[0], alone.curve, strict=True):
        assert point == pytest.approx(vars(wanted), rel=1e-3)


@pytest.mark.slow
def test_torchrun_trains_the_stage_on_two_processes_and_one_of_them_writes(tmp_path):
    folder = write_project(tmp_path / "project", PARAMS.replace("frozen_dropout: true", "frozen_dropout: false"))
    run(folder, sys.executable, "-m", "stages.prepare", "--task", "xor")
    pair = ["--task", "xor", "--backbone", "tiny"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = run(folder, *torchrun, "-m", "stages.finetune", *pair, OMP_NUM_THREADS="1", PERMAFROST_DEVICE="cpu")
    assert done.stdout.count("test accuracy") == 1
    assert "destroy_process_group" not in done.stderr
    two = json.loads((folder / "metrics/finetune/xor-tiny.json").read_text())
    assert two["processes"] == 2
    run(folder, sys.executable, "-m", "stages.finetune", *pair)
    one = json.loads((folder / "metrics/finetune/xor-tiny.json").read_text())
    assert one["processes"] == 1
    assert one["trained_parameters"] == two["trained_parameters"]
    assert one["examples_seen"] == two["examples_seen"]


@pytest.mark.slow
def test_two_processes_that_were_killed_go_on_to_the_same_bytes(tmp_path):
    folder = write_project(tmp_path / "project", PARAMS.replace("steps: 6", "steps: 30"))
    run(folder, sys.executable, "-m", "stages.prepare", "--task", "xor")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*torchrun, "-m", "stages.finetune", "--task", "xor", "--backbone", "tiny", "--checkpoint-every", "2"]
    alike = {"OMP_NUM_THREADS": "1", "PERMAFROST_DEVICE": "cpu"}
    run(folder, *command, **alike)
    weights = folder / "data/finetuned/xor-tiny.safetensors"
    wanted = weights.read_bytes()
    weights.unlink()
    with subprocess.Popen(
        command, cwd=folder, env=environment(**alike), stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stderr
        for line in process.stderr:
            if "9/30" in line:
                break
        os.killpg(process.pid, signal.SIGKILL)
    assert list((folder / ".permafrost/finetune").rglob("*.pt")), "it was killed before its end"
    run(folder, *command, **alike)
    assert weights.read_bytes() == wanted


def test_a_launch_of_two_that_became_one_is_refused(tokens, tiny_bert, monkeypatch):
    monkeypatch.setattr("pipeline.finetune.loop.world_size", lambda: 2)
    with pytest.raises(PermafrostError, match="2 processes were asked for, but accelerate sees 1"):
        finetune(tokens, backbone(tiny_bert), settings(), CPU, "k")
