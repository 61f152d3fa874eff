"""docs/using-dvc.md is true: its commands run, in its order, and print what it shows, up to numbers."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.imports import ROOT
from tests.tiny import run, write_project

PAGE = (ROOT / "docs/using-dvc.md").read_text(encoding="utf-8")
SHOWS = ("metrics show", "metrics diff", "plots diff", "exp run -S", "exp run --queue", "exp show", "repro -s -f")


def steps() -> list[tuple[str, list[str]]]:
    """Each command of the page with the lines shown below it."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


def shape(text: str) -> str:
    """The text with each number as #, and without what only aligns columns."""
    return re.sub(r"[ -]{2,}", " ", re.sub(r"-?\d+(\.\d+)?(e-?\d+)?", "#", text))


def test_every_promised_command_is_shown():
    commands = [command for command, _ in steps()]
    for wanted in SHOWS:
        assert any(f"dvc {wanted}" in command for command in commands), wanted


@pytest.mark.slow
def test_every_command_prints_what_the_page_shows(tmp_path):
    project = write_project(tmp_path / "project")
    run(project, "git", "init", "-q")
    for name, value in (("user.name", "you"), ("user.email", "you@example.com")):
        run(project, "git", "config", name, value)
    for command, shown in steps():
        printed = shape(run(project, *shlex.split(command)).stdout)
        for line in shown:
            if piece := line.strip("…"):
                assert shape(piece) in printed, command
