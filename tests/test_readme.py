"""The README is true: its tree, its commands, its links."""

from __future__ import annotations

import re
import subprocess

from tests.imports import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_tree_names_what_is_there_and_misses_no_package():
    tree = README.split("## The tree")[1].split("```")[1]
    named = {line.split()[0].rstrip("/") for line in tree.splitlines() if line.strip()}
    packages = {path.parent.name for path in (ROOT / "pipeline").glob("*/__init__.py")}
    modules = {path.name for path in (ROOT / "pipeline").glob("*.py") if path.name != "__init__.py"}
    assert packages | modules <= named
    for name in named - {"pipeline"}:
        assert (ROOT / name).exists() or (ROOT / "pipeline" / name).exists(), name


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"^make ([a-z-]+)", README, re.MULTILINE)) <= targets


def test_stages_of_the_graph_are_those_of_dvc():
    from ruamel.yaml import YAML

    stages = set(YAML(typ="safe").load((ROOT / "dvc.yaml").read_text())["stages"])
    graph = README.split("## The graph")[1].split("```")[1]
    assert stages == {name for name in re.findall(r"[a-z]+", graph) if name in stages}


def test_the_program_of_the_readme_runs():
    import sys

    command = re.search(r"python (-m pipeline\.looped run [^`]+)`", README)
    assert command
    done = subprocess.run([sys.executable, *command[1].split()], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "63" in done.stdout
