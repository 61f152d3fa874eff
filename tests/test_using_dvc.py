"""docs/using-dvc.md is true: its commands run, in its order, and print what it shows, up to numbers."""

from __future__ import annotations

import shlex

import pytest

from tests.pages import assert_printed, blocks, steps
from tests.tiny import run, write_project

STEPS = [step for block in blocks("using-dvc.md") for step in steps(block.text)]
SHOWS = ("metrics show", "metrics diff", "plots diff", "exp run -S", "exp run --queue", "exp show", "repro -s -f")


def test_every_promised_command_is_shown():
    for wanted in SHOWS:
        assert any(f"dvc {wanted}" in command for command, _ in STEPS), wanted


@pytest.mark.slow
def test_every_command_prints_what_the_page_shows(tmp_path):
    project = write_project(tmp_path / "project")
    run(project, "git", "init", "-q")
    for name, value in (("user.name", "you"), ("user.email", "you@example.com")):
        run(project, "git", "config", name, value)
    for command, shown in STEPS:
        assert_printed(shown, run(project, *shlex.split(command)).stdout, command)
