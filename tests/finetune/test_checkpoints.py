from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from pipeline.finetune.checkpoints import Checkpoints
from pipeline.finetune.loop import Work, discard_work, finetune
from pipeline.finetune.training import NotFinite, Training
from pipeline.tasks.tokens import open_tokens
from pipeline.work import WorkBusy
from tests.finetune.recipe import CPU, settings
from tests.imports import ROOT
from tests.tiny import backbone, environment

RECIPE = {"steps": 60, "evaluate_every": 7, "compute_dtype": "bfloat16"}
CHILD = """
import sys, time
from pathlib import Path
from pipeline.finetune.loop import Work, finetune
from pipeline.finetune.training import Training
from pipeline.tasks.tokens import open_tokens
from pipeline.work import WorkBusy, work_key
from tests.finetune.recipe import CPU, settings
from tests.tiny import backbone
step = Training._step
def slow(self, key):
    step(self, key)
    time.sleep(0.05)
Training._step = slow
recipe = settings(steps=60, evaluate_every=7, compute_dtype="bfloat16")
finetune(open_tokens(Path(sys.argv[1])), backbone(Path(sys.argv[2])), recipe, CPU, "k", Work(Path(sys.argv[3]), 5))
"""


def files(folder):
    return sorted(folder.rglob("*.pt"))


def test_a_killed_run_goes_on_to_the_same_bits(tiny_tokens, tiny_bert, tmp_path, monkeypatch):
    whole = finetune(open_tokens(tiny_tokens), backbone(tiny_bert), settings(**RECIPE), CPU, "k")
    command = [sys.executable, "-c", CHILD, str(tiny_tokens), str(tiny_bert), str(tmp_path)]
    child = subprocess.Popen(command, cwd=ROOT, env=environment(PYTHONPATH=str(ROOT)))
    deadline = time.monotonic() + 60
    while len(files(tmp_path)) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    reached = [int(path.stem) for path in files(tmp_path)]
    assert reached
    assert max(reached) < 60, "the child should have been killed before its end"
    steps = []
    monkeypatch.setattr(Training, "_step", lambda self, key, step=Training._step: (step(self, key), steps.append(1)))
    rest = finetune(open_tokens(tiny_tokens), backbone(tiny_bert), settings(**RECIPE), CPU, "k", Work(tmp_path, 5))
    assert rest.metrics == whole.metrics
    assert rest.curve == whole.curve
    assert all(torch.equal(rest.parameters[name], whole.parameters[name]) for name in whole.parameters)
    assert len(steps) == 60 - max(reached)


@pytest.fixture
def checkpoints(tmp_path):
    with Checkpoints(tmp_path, "run 1", every=2) as held:
        yield held


def test_the_last_two_are_kept_and_the_newest_whole_one_is_read(checkpoints):
    for step in (2, 4, 6):
        checkpoints.save(step, {"step": step, "weight": torch.full((2,), float(step))})
    kept = files(checkpoints.folder)
    assert [int(path.stem) for path in kept] == [4, 6]
    kept[-1].write_bytes(kept[-1].read_bytes()[:100])
    state = checkpoints.load()
    assert state is not None
    assert state["step"] == 4


def test_other_settings_start_anew(checkpoints, tmp_path):
    checkpoints.save(2, {"step": 2})
    checkpoints.__exit__(None, None, None)
    with Checkpoints(tmp_path, "run 2", every=2) as other:
        assert other.load() is None
    with Checkpoints(tmp_path, "run 1", every=2) as again:
        assert again.load() == {"step": 2}


def test_a_second_process_is_refused(checkpoints, tmp_path):
    with pytest.raises(WorkBusy, match="another process is at work"), Checkpoints(tmp_path, "run 1", every=2):
        pass


def test_a_loss_that_is_no_number_leaves_the_last_good_checkpoint(tokens, tiny_bert, tmp_path):
    with pytest.raises(NotFinite, match=r"at step \d+"):
        finetune(tokens, backbone(tiny_bert), settings(lr=1e30, steps=50), CPU, "k", Work(tmp_path, 1))
    assert files(tmp_path)


def test_finished_work_is_thrown_away(tokens, tiny_bert, tmp_path):
    work = Work(tmp_path, 5)
    finetune(tokens, backbone(tiny_bert), settings(), CPU, "k", work)
    assert files(tmp_path)
    discard_work(work, "k")
    assert not (tmp_path / "k").exists()
