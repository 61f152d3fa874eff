"""The pages of docs/ are true: what they tell you to type is run, or says why it cannot be here."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from dvc.utils.hydra import apply_overrides
from ruamel.yaml import YAML

from pipeline.extraction.settings import CacheSettings
from pipeline.finetune.settings import FinetuneSettings
from pipeline.params import Params
from pipeline.probes.settings import ProbeSettings
from stages.check import main as check
from tests.imports import ROOT
from tests.pages import RUN, blocks, merge, page_project, run_page
from tests.tiny import run

RUNNABLE = ("first-run.md", "your-own-task.md", "your-own-backbone.md", "formats.md", "how-a-number-is-made.md")
PAGES = (*RUNNABLE, "gpu.md", "tables.md")
ALL = sorted(path.name for path in (ROOT / "docs").glob("*.md"))
SECTIONS = {"cache": CacheSettings, "probe": ProbeSettings, "finetune": FinetuneSettings}


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_run_or_says_what_it_needs(page):
    for block in blocks(page):
        assert block.language in (*RUN, "text", "sh"), block
        if block.language == "sh":
            assert block.text.startswith("# needs "), f"{page}: a block that no test runs must say what it needs"


@pytest.mark.parametrize("page", ALL)
def test_links_and_files_lead_somewhere(page):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert target.startswith("https://") or (ROOT / "docs" / target).exists(), target
    for file in re.findall(r"`((?:pipeline|stages|tests)/[\w/.]+\.(?:py|yaml|jinja))`", text):
        assert (ROOT / file).exists(), file


def test_the_readme_lists_every_page():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for page in ALL:
        assert f"](docs/{page})" in readme, page


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project whose whole graph has run."""
    folder = page_project(tmp_path_factory.mktemp("pages") / "project")
    run(folder, "dvc", "repro")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNABLE)
def test_a_page_runs_from_top_to_bottom(project, tmp_path, page):
    run_page(page, Path(shutil.copytree(project, tmp_path / "project", symlinks=True)))


def test_the_commands_of_the_tables_name_settings_tasks_and_backbones_that_exist(tmp_path, monkeypatch):
    """They need a hub and days; here their parameters are read and checked, and their targets looked up."""
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    for block in blocks("tables.md"):
        if block.language == "yaml":
            merge(Path("params.yaml"), block.text)
    assert CliRunner().invoke(check, []).exit_code == 0
    base = Path("params.yaml").read_text(encoding="utf-8")
    stages = YAML(typ="safe").load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    commands = re.findall(r"`dvc (?:exp run|repro)([^`]*)`", (ROOT / "docs/tables.md").read_text(encoding="utf-8"))
    assert len(commands) > 8
    for command in commands:
        Path("params.yaml").write_text(base, encoding="utf-8")
        apply_overrides("params.yaml", re.findall(r'-S "([^"]+)"', command))  # what `dvc exp run -S` calls
        params = Params(Path("params.yaml"))
        for section, settings in SECTIONS.items():
            params.section(section, settings)
        grid = params.plain("grid")
        assert {*grid["tasks"]} <= {*params.names("tasks")}
        assert {*grid["backbones"]} <= {*params.names("backbones")}
        for target in re.findall(r"(?<![\w.=\"])([a-z]+)(@[\w-]+)?(?=\s|$)", command):
            assert target[0] in stages, command
