"""The structure that docs and newcomers rely on: who may import whom, and how long files and functions grow."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.imports import ROOT, imported_by

FILES = sorted(path for folder in ("pipeline", "stages") for path in (ROOT / folder).rglob("*.py"))
LEAVES = {"errors", "problem", "identity", "params", "progress", "device", "work", "allocator"}
MAY_IMPORT = {
    "comparison": {"costs"},
    "extraction": {"tasks", "backbones", "looped", "features", "costs", "execution"},
    "probes": {"features", "tasks", "costs", "execution"},
    "finetune": {"tasks", "backbones", "costs"},
    "tasks": {"looped"},
    "backbones": set(),
    "looped": set(),
    "features": set(),
    "costs": set(),
    "execution": set(),
}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_each_module_imports_only_what_its_package_may(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    package = parts[1] if len(parts) > 2 else None
    for name in imported_by(path):
        top, *rest = name.split(".")
        assert top != "stages" or parts[0] == "stages", f"nothing of pipeline imports stages: {name}"
        if not rest or parts[0] == "stages" or rest[0] in LEAVES or rest[0] == package:
            continue
        assert package is not None, f"a leaf module imports a package: {name}"
        assert rest[0] in MAY_IMPORT[package], f"{package} may not import {name}"


def test_probes_use_only_the_scoring_of_tasks():
    used = {name for path in (ROOT / "pipeline/probes").glob("*.py") for name in imported_by(path)}
    assert {name for name in used if name.startswith("pipeline.tasks.")} == {"pipeline.tasks.scoring"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_files_and_functions_stay_short(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 300
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 70, f"{node.name} is longer than 70 lines"


def test_no_file_is_named_after_nothing():
    assert not {path.stem for path in FILES} & {"utils", "util", "common", "helpers", "misc"}


def test_importing_a_stage_loads_no_heavy_library():
    stages = [path.stem for path in (ROOT / "stages").glob("*.py") if path.stem != "__init__"]
    code = f"import sys, {', '.join(f'stages.{name}' for name in stages)}; print([*sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for heavy in ("torch", "transformers", "zarr", "sklearn", "matplotlib", "dask"):
        assert f"'{heavy}'" not in loaded, f"a stage imports {heavy} at module level"
