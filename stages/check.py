"""check: read every entry of params.yaml before anything runs. Not a stage of the graph; `make repro` calls it."""

from __future__ import annotations

import click

from stages.command import PARAMS, reports_errors


@click.command()
@reports_errors
def main() -> None:
    """Check params.yaml as a whole: unknown keys, mistyped values, names in the grid that have no entry."""
    from pipeline.backbones.settings import backbone_settings
    from pipeline.extraction.settings import CacheSettings
    from pipeline.finetune.pretrain import PretrainSettings
    from pipeline.finetune.settings import FinetuneSettings
    from pipeline.params import Params
    from pipeline.probes.settings import ProbeSettings
    from pipeline.tasks.registry import task_settings
    from stages.grid import Grid

    params = Params(PARAMS)
    params.section("cache", CacheSettings)
    params.section("probe", ProbeSettings)
    params.section("finetune", FinetuneSettings)
    params.section("pretrain", PretrainSettings)
    grid = params.section("grid", Grid)
    for name in {*params.names("tasks"), *grid.tasks}:
        task_settings(params, name)
    for name in {*params.names("backbones"), *grid.backbones, *grid.pretrain}:
        backbone_settings(params, name)


if __name__ == "__main__":
    main()
