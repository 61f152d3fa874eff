"""DVC driven for real in a temporary project: what reruns after which change, and what survives a kill."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import time

import pytest

from pipeline.identity import file_digests
from tests.tiny import PARAMS, environment, run, write_project


def repro(folder, *options) -> list[str]:
    """Run `dvc repro` and give the stages that it ran, sorted."""
    output = run(folder, "dvc", "repro", *options).stdout
    return sorted(re.findall(r"^Running stage '(.+)':$", output, re.MULTILINE))


def change(folder, file, old, new):
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1))


ALL = sorted(
    ["prepare@xor", "programs", "compare"]
    + [f"{stage}@xor-{backbone}" for stage in ("cache", "probe", "finetune") for backbone in ("tiny", "tiny-random")]
)
ARTIFACTS = ("data/tokens", "data/features", "metrics")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project without git, run once."""
    folder = write_project(tmp_path_factory.mktemp("dvc"))
    run(folder, "dvc", "config", "--local", "core.no_scm", "true")
    assert repro(folder) == ALL
    return folder


@pytest.mark.slow
def test_each_change_reruns_exactly_the_stages_it_can_change(project):
    assert repro(project) == []

    change(project, "params.yaml", "iterations: 50", "iterations: 40")
    assert repro(project) == ["compare", "probe@xor-tiny", "probe@xor-tiny-random"]

    change(project, "params.yaml", "like: *tiny, seed: 0", "like: *tiny, seed: 1")
    of_random = [f"{stage}@xor-tiny-random" for stage in ("cache", "finetune", "probe")]
    assert repro(project) == sorted([*of_random, "compare"])

    change(project, "pipeline/probes/logistic.py", '"""Multi', '"""A comment. Multi')
    assert repro(project) == ["compare", "probe@xor-tiny", "probe@xor-tiny-random"]

    change(project, "params.yaml", "iterations: 40", "iterations:  50")
    change(project, "pipeline/probes/logistic.py", '"""A comment. Multi', '"""Multi')
    assert repro(project) == ["compare", "probe@xor-tiny-random"]  # the run cache knows the other one's result


@pytest.mark.slow
def test_one_arm_alone_can_run_again_and_be_compared(project):
    """finetune.lr is every arm's: the others stay stale until they are asked for."""
    (project / "params.yaml").write_text(PARAMS)
    repro(project)
    change(project, "params.yaml", "lr: 0.001", "lr: 0.002")
    assert repro(project, "--downstream", "finetune@xor-tiny") == ["compare", "finetune@xor-tiny"]
    assert repro(project, "finetune@xor-tiny") == []
    assert repro(project, "compare") == ["compare", "finetune@xor-tiny-random"]


@pytest.mark.slow
def test_two_clean_runs_give_the_same_bytes(project, tmp_path):
    (project / "params.yaml").write_text(PARAMS)
    repro(project)
    other = write_project(tmp_path / "other")
    run(other, "dvc", "config", "--local", "core.no_scm", "true")
    assert repro(other) == ALL
    for artifact in ARTIFACTS:
        assert file_digests(project / artifact) == file_digests(other / artifact), artifact


@pytest.mark.slow
def test_killed_at_a_random_moment_of_cache_dvc_goes_on_where_it_was(project, tmp_path):
    """The whole process group dies by kill -9; finished shards are not computed again and the bytes are the same."""
    (project / "params.yaml").write_text(PARAMS)
    repro(project)
    wanted = file_digests(project / "data/features/xor-tiny")
    other = write_project(tmp_path / "other")
    run(other, "dvc", "config", "--local", "core.no_scm", "true")
    repro(other, "prepare@xor")
    process = subprocess.Popen(
        ["dvc", "repro", "cache@xor-tiny"],
        cwd=other,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    target = random.Random(os.getpid()).randrange(1, 8)
    with process:
        assert process.stderr
        for line in process.stderr:
            if f"shard {target}/8" in line:
                time.sleep(random.uniform(0, 0.01))
                break
        os.killpg(process.pid, signal.SIGKILL)
    done = run(other, "dvc", "repro", "cache@xor-tiny")
    assert done.stderr.count("was done") >= target
    assert file_digests(other / "data/features/xor-tiny") == wanted


@pytest.mark.slow
def test_a_project_under_git_with_no_commit_yet_runs(tmp_path):
    folder = write_project(tmp_path / "fresh")
    run(folder, "git", "init", "-q")
    assert repro(folder, "cache@xor-tiny") == ["cache@xor-tiny", "prepare@xor"]
