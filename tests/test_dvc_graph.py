"""dvc.yaml says exactly what each stage depends on: the code it imports and the parameters it reads."""

from __future__ import annotations

import dataclasses

import pytest
from ruamel.yaml import YAML

from pipeline.extraction.settings import CacheSettings
from pipeline.finetune.pretrain import PretrainSettings
from pipeline.finetune.settings import FinetuneSettings
from pipeline.probes.settings import ProbeSettings
from tests.imports import ROOT, code_dependencies

STAGES = YAML(typ="safe").load((ROOT / "dvc.yaml").read_text())["stages"]
CACHE = {f"cache.{field.name}" for field in dataclasses.fields(CacheSettings)}
PRETRAIN = {f"pretrain.{field.name}" for field in dataclasses.fields(PretrainSettings)}
BACKBONE = "backbones.${item.backbone}"
READS = {
    "prepare": {"tasks.${item.task}"},
    "cache": {BACKBONE, *CACHE},
    "probe": {BACKBONE, *CACHE, *(f"probe.{field.name}" for field in dataclasses.fields(ProbeSettings))},
    "finetune": {BACKBONE, *(f"finetune.{field.name}" for field in dataclasses.fields(FinetuneSettings))},
    "pretrain": {BACKBONE, "tasks.bit_memory", *PRETRAIN},
    "programs": set(),
    "compare": {"backbones", "grid.tasks", "grid.backbones"},
}


@pytest.mark.parametrize("stage", STAGES)
def test_code_dependencies_are_the_modules_that_the_stage_imports(stage):
    listed = [dep for dep in STAGES[stage]["deps"] if dep.startswith(("pipeline/", "stages/"))]
    wanted = code_dependencies(stage)
    assert listed == wanted, "dvc.yaml should list:\n" + "\n".join(f"      - {dep}" for dep in wanted)


@pytest.mark.parametrize("stage", STAGES)
def test_parameters_are_the_leaves_that_the_stage_reads(stage):
    assert set(STAGES[stage].get("params", [])) == READS[stage]


def test_no_output_persists_and_the_cache_stage_has_only_cached_ones():
    for name, stage in STAGES.items():
        for kind in ("outs", "metrics", "plots"):
            for out in stage.get(kind, []):
                options = next(iter(out.values())) if isinstance(out, dict) else {}
                assert not options.get("persist"), f"{name}: persist locks in stale data"
    assert all(isinstance(out, str) for out in STAGES["cache"]["outs"])
    assert not STAGES["cache"].get("metrics")


def test_commands_carry_nothing_that_only_changes_speed_or_place():
    for stage in STAGES.values():
        options = [word for word in stage["cmd"].split() if word.startswith("--")]
        assert set(options) <= {"--task", "--backbone"}
