"""The documentation's pages as tests see them: their blocks of code in order, and a project to run them in."""

from __future__ import annotations

import io
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.imports import ROOT
from tests.tiny import PARAMS, run, write_project, write_tokenizer

RUN = ("console", "python", "yaml")
"""Blocks that a test runs or reads into params.yaml; `text` is what the block before it prints."""
WORDS = ("rain", "wind", "sun", "snow", "all", "day", "ice")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str


def blocks(page: str) -> list[Block]:
    """The fenced blocks of docs/`page`, in order."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return [Block(*found) for found in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)]


def steps(console: str) -> list[tuple[str, list[str]]]:
    """Each command of a console block with the lines shown below it."""
    found: list[tuple[str, list[str]]] = []
    for line in console.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def shape(text: str) -> str:
    """The text with each number as #, and without what only aligns columns."""
    return re.sub(r"[ -]{2,}", " ", re.sub(r"-?\d[\d,]*(\.\d+)?(e[-+]?\d+)?", "#", text))


def assert_printed(shown: list[str], printed: str, command: str) -> None:
    """Each line that a page shows was printed, up to numbers; `…` stands for what was left out."""
    for line in shown:
        for piece in filter(None, line.split("…")):
            assert shape(piece.strip()) in shape(printed), f"{command}\nprints no {piece!r}, but\n{printed}"


def page_project(folder: Path) -> Path:
    """A project with the names that the pages use, `bit_xor` and `minilm`, in which everything is tiny."""
    params = PARAMS.replace("tiny-random", "minilm-random").replace("tiny: &tiny", "minilm: &minilm")
    params = params.replace("[tiny,", "[minilm,").replace("like: *tiny", "like: *minilm").replace("xor", "bit_xor")
    project = write_project(folder, params.replace("bit_bit_xor", "bit_xor"))
    write_tokenizer(project / "tiny-bert", WORDS)
    run(project, "dvc", "config", "--local", "core.no_scm", "true")
    return project


def run_page(page: str, project: Path) -> None:
    """Run a page from top to bottom in `project`: its commands, its Python, its entries of params.yaml."""
    printed, command = "", ""
    for block in blocks(page):
        if block.language == "yaml":
            merge(project / "params.yaml", block.text)
        elif block.language == "python":
            command = "the block of Python"
            printed = run(project, sys.executable, "-c", block.text).stdout
        elif block.language == "text":
            assert_printed(block.text.splitlines(), printed, command)
        elif block.language == "console":
            for command, shown in steps(block.text):
                done = run(project, "bash", "-c", command)
                assert_printed(shown, done.stdout + done.stderr, command)


def merge(path: Path, addition: str) -> None:
    """Put the entries of a page's YAML into a params.yaml."""
    yaml = YAML()
    document = yaml.load(path.read_text(encoding="utf-8"))
    _update(document, yaml.load(addition))
    out = io.StringIO()
    yaml.dump(document, out)
    path.write_text(out.getvalue(), encoding="utf-8")


def _update(document: Any, addition: Any) -> None:
    for key, value in addition.items():
        if isinstance(value, dict) and isinstance(document.get(key), dict):
            _update(document[key], value)
        else:
            document[key] = value
