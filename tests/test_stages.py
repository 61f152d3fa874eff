"""The stages as a user meets them: commands, messages, exit codes."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.identity import file_digests
from tests.tiny import PARAMS, environment, run, write_project

PYTHON = sys.executable


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project whose tokens are prepared and whose features are cached once."""
    folder = write_project(tmp_path_factory.mktemp("project"))
    run(folder, PYTHON, "-m", "stages.prepare", "--task", "xor")
    run(folder, PYTHON, "-m", "stages.cache", "--task", "xor", "--backbone", "tiny")
    return folder


def stage(folder, name, *options, **more):
    return run(folder, PYTHON, "-m", f"stages.{name}", *options, check=False, **more)


def fails(done, *pieces):
    """The command failed with one message, without a traceback, that holds all the pieces."""
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    for piece in pieces:
        assert piece in done.stderr
    return True


PAIR = ("--task", "xor", "--backbone", "tiny")


def test_unknown_names_are_refused_with_the_nearest(project):
    assert fails(stage(project, "prepare", "--task", "xr"), "tasks has no entry 'xr'; did you mean 'xor'?")
    assert fails(stage(project, "cache", "--task", "xor", "--backbone", "tinny"), "did you mean 'tiny'?")


def test_a_mistyped_parameter_is_found_before_anything_runs(project):
    try:
        (project / "params.yaml").write_text(PARAMS.replace("penalties: [0.1, 0.01]", "penalties: [0.1, -1]"))
        assert fails(stage(project, "check"), "params.yaml:25: probe.penalties.1", "greater than 0, found -1")
        (project / "params.yaml").write_text(PARAMS.replace("tasks: [xor]", "tasks: [xr]"))
        assert fails(stage(project, "check"), "tasks has no entry 'xr'")
    finally:
        (project / "params.yaml").write_text(PARAMS)
    assert stage(project, "check").returncode == 0


def test_the_probe_says_when_its_penalty_is_at_an_end_of_the_path(project):
    done = stage(project, "probe", *PAIR)
    assert "logistic on layer final: test accuracy" in done.stdout
    assert "fitted; its penalty is at an end of probe.penalties: give more there" in done.stdout


def test_features_made_with_other_settings_are_refused_by_the_probe(project):
    try:
        (project / "params.yaml").write_text(PARAMS.replace("adapter_seed: 0", "adapter_seed: 7"))
        done = stage(project, "probe", *PAIR)
        assert fails(done, "settings.adapter_seed: found 0, wanted 7", "to mend: dvc repro cache@xor-tiny")
    finally:
        (project / "params.yaml").write_text(PARAMS)


def test_a_probe_before_the_cache_says_what_to_run(project):
    done = stage(project, "probe", "--task", "xor", "--backbone", "tiny-random")
    assert fails(done, "data/features/xor-tiny-random does not exist", "dvc repro cache@xor-tiny-random")


def test_an_unknown_device_is_refused(project):
    assert fails(stage(project, "cache", *PAIR, "--device", "abacus"), "unknown device 'abacus'")
    assert fails(stage(project, "cache", *PAIR, PERMAFROST_DEVICE="cuda:7"), "device 'cuda:7' is not here")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_is_one_clear_message_and_a_rerun_goes_on(project, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40k", "tmpfs", str(disk)], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        done = stage(project, "cache", *PAIR, PERMAFROST_WORK=str(disk))
        assert fails(done, "disk is full", "what is finished is kept")
        subprocess.run(["mount", "-o", "remount,size=4m", str(disk)], check=True)
        wanted = file_digests(project / "data/features/xor-tiny")
        assert stage(project, "cache", *PAIR, PERMAFROST_WORK=str(disk)).returncode == 0
        assert file_digests(project / "data/features/xor-tiny") == wanted
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_progress_is_one_line_a_shard_in_a_log(project):
    done = stage(project, "cache", *PAIR, PERMAFROST_FRESH="1")
    lines = [line for line in done.stderr.splitlines() if line.startswith("cache xor-tiny:")]
    assert len(lines) == 8
    assert "64/64 rows" in lines[-1]
    assert "rows/s" in lines[-1]
    assert "left" in lines[-1]


@pytest.mark.parametrize("after", [4, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 7))])
def test_killed_in_the_middle_it_goes_on_where_it_was(project, tmp_path, after):
    """Kill -9 once `after` shards are done; the next run computes the others only, and the bytes are the same."""
    wanted = file_digests(project / "data/features/xor-tiny")
    work = tmp_path / "work"
    slow = {"PERMAFROST_WORK": str(work)}
    process = subprocess.Popen(
        [PYTHON, "-m", "stages.cache", *PAIR],
        cwd=project,
        env=environment(**slow),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        assert process.stderr
        for line in process.stderr:
            if f"shard {after}/" in line:
                break
        os.killpg(process.pid, signal.SIGKILL)
    done = stage(project, "cache", *PAIR, **slow)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("was done") >= after
    assert file_digests(project / "data/features/xor-tiny") == wanted


@pytest.mark.slow
@pytest.mark.parametrize("work_is_gone", [False, True])
def test_a_damaged_store_is_found_named_and_mended_alone(project, tmp_path, work_is_gone):
    """One shard loses a bit, one its tail, one is deleted; each is named, and these three alone are computed again."""
    store, work = project / "data/features/xor-tiny", tmp_path / "work"
    assert stage(project, "cache", *PAIR, PERMAFROST_WORK=str(work)).returncode == 0
    wanted, cost = file_digests(store), (project / "data/cost/cache-xor-tiny.json").read_bytes()
    if work_is_gone:
        shutil.rmtree(work)
    files = [store / f"features/c/{shard}/0/0/0" for shard in (1, 4, 6)]
    content = bytearray(files[0].read_bytes())
    content[7] ^= 16
    files[0].write_bytes(content)
    files[1].write_bytes(files[1].read_bytes()[:-9])
    files[2].unlink()
    features = [PYTHON, "-m", "pipeline.features"]
    found = run(project, *features, "verify", str(store), check=False)
    assert found.returncode == 1
    assert [line.split("(")[1].split(",")[0] for line in found.stdout.splitlines() if "shard" in line][:3] == [
        "shard 6",
        "shard 1",
        "shard 4",
    ]
    mended = run(project, *features, "repair", str(store), PERMAFROST_WORK=str(work))
    lost = [1, 4, 6] if work_is_gone else [1, 4]  # a deleted file is still linked from the work folder
    assert f"computing {len(lost)} of 8 shards again: {lost}" in mended.stdout
    assert mended.stderr.count("was done") == 8 - len(lost)
    assert file_digests(store) == wanted
    assert (project / "data/cost/cache-xor-tiny.json").read_bytes() == cost


@pytest.mark.slow
def test_fifty_kills_at_random_moments_change_no_byte(project, tmp_path):
    """Kill -9 at random moments from the first file to the published store; then one run to the end."""
    store, moments = project / "data/features/xor-tiny", random.Random(0)
    wanted = file_digests(store)

    def killed(moment: int, work: Path, fresh: bool) -> str:
        places = {"PERMAFROST_WORK": str(work), "PERMAFROST_FRESH": "1" if fresh else "", "STORE": str(store)}
        command = [PYTHON, "-c", KILLED_IN_A_WRITE, str(moment), *PAIR]
        options = {"cwd": project, "env": environment(**places), "capture_output": True, "text": True}
        done = subprocess.run(command, check=False, **options)
        assert done.returncode == -signal.SIGKILL, done.stderr
        return done.stdout

    events = int(killed(10**9, tmp_path / "counted", fresh=True).splitlines()[-1])
    between = 0
    for turn in range(50):
        work = tmp_path / f"work{turn % 5}"
        killed(moments.randrange(1, events), work, fresh=turn < 5 or moments.random() < 0.5)
        between += 0 < len([*work.rglob("done/*.json")]) < 8
    assert between >= 10, "many kills should strike between the first shard and the last"
    for turn in range(5):
        done = stage(project, "cache", *PAIR, PERMAFROST_WORK=str(tmp_path / f"work{turn}"))
        assert done.returncode == 0, done.stderr
        assert file_digests(store) == wanted


KILLED_IN_A_WRITE = """
import os, signal, sys
left, seen = int(sys.argv.pop(1)), 0
sys.argv[0] = "stages.cache"
places = (os.environ["PERMAFROST_WORK"], os.environ["STORE"], "data/features")
def strike(event, details):
    # Every file that is opened, renamed, linked or removed is a moment at which power may fail.
    global left, seen
    if event in ("open", "os.rename", "os.link", "os.remove") and str(details[0]).startswith(places):
        left, seen = left - 1, seen + 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(strike)
from stages.cache import main
main(standalone_mode=False)
print(seen, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_help_tells_what_each_stage_writes(project):
    for name, written in (("cache", "data/features"), ("probe", "metrics/probe"), ("finetune", "metrics/finetune")):
        done = stage(project, name, "--help")
        assert done.returncode == 0
        assert written in done.stdout
    assert "PERMAFROST_DEVICE" in stage(project, "cache", "--help").stdout
