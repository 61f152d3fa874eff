"""cache: run the frozen backbone once over a task and keep its hidden states."""

from __future__ import annotations

from pathlib import Path

import click

from stages.command import (
    PARAMS,
    backbone_option,
    certificates,
    device_option,
    feature_names,
    reports_errors,
    scheduler_option,
    task_option,
    work_option,
)


@click.command()
@task_option
@backbone_option
@device_option
@work_option
@scheduler_option
@click.option(
    "--fresh", is_flag=True, envvar="PERMAFROST_FRESH", show_envvar=True, help="Compute anew what was already computed."
)
@reports_errors
def main(task: str, backbone: str, device: str, work: Path, scheduler: str, fresh: bool) -> None:
    """Write data/features/TASK-BACKBONE: hidden states of the frozen backbone, in Zarr."""
    from pipeline.backbones.settings import backbone_settings
    from pipeline.costs.meters import EnergyMeter, measured
    from pipeline.device import pick_device
    from pipeline.execution.cluster import on_this_machine
    from pipeline.extraction.engine import Where, extract, plan_extraction
    from pipeline.extraction.settings import CacheSettings
    from pipeline.extraction.sources import find_source
    from pipeline.params import Params
    from pipeline.tasks.tokens import open_tokens

    params, energy = Params(PARAMS), EnergyMeter()
    plan = plan_extraction(
        open_tokens(Path("data/tokens") / task),
        find_source(backbone_settings(params, backbone)),
        params.section("cache", CacheSettings),
        feature_names(params, task, backbone),
    )
    where = Where(pick_device(device), work, scheduler, certificates(), fresh)
    cost = extract(plan, Path("data/features") / f"{task}-{backbone}", where)
    tokens = int(plan.inputs.lengths.sum())
    measured(cost, energy, tokens, on_this_machine(scheduler)).write(Path("data/cost"))


if __name__ == "__main__":
    main()
