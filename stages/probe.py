"""probe: train a linear probe on cached features."""

from __future__ import annotations

from pathlib import Path

import click

from pipeline.problem import problem_in
from stages.command import (
    PARAMS,
    backbone_option,
    certificates,
    feature_names,
    reports_errors,
    scheduler_option,
    task_option,
)


@click.command()
@task_option
@backbone_option
@click.option(
    "--memory",
    type=click.IntRange(min=0),
    default=1 << 30,
    show_default=True,
    envvar="PERMAFROST_PROBE_MEMORY",
    show_envvar=True,
    help="Bytes of features to keep in memory; more than that is read again for each pass.",
)
@click.option(
    "--device",
    default="cpu",
    show_default=True,
    envvar="PERMAFROST_DEVICE",
    show_envvar=True,
    help="cpu (numpy), auto, cuda or cuda:N, for ridge and logistic regression.",
)
@scheduler_option
@reports_errors
def main(task: str, backbone: str, memory: int, device: str, scheduler: str) -> None:
    """Write metrics/probe/TASK-BACKBONE.json: what linear models and neighbours make of the cached features."""
    from pipeline.features import open_features
    from pipeline.identity import write_json
    from pipeline.params import Params
    from pipeline.probes.probe import Where, run_probe
    from pipeline.probes.settings import ProbeSettings

    params = Params(PARAMS)
    key = f"{task}-{backbone}"
    settings = params.section("probe", ProbeSettings)
    store = open_features(Path("data/features") / key, expect=feature_names(params, task, backbone))
    where = Where(memory, torch_device(device), scheduler, certificates())
    metrics, cost = run_probe(store, settings, key, where)
    write_json(Path("metrics/probe") / f"{key}.json", metrics)
    cost.write(Path("data/cost"))
    for name, one in {metrics["method"]: metrics, **metrics["methods"]}.items():
        problem = problem_in(one)
        score = f"test {problem.said(one[problem.test])}"
        layer = "features of all layers" if "features" in one else f"layer {metrics['layer']}"
        ends = (min(settings.penalties), max(settings.penalties))
        edge = "; its penalty is at an end of probe.penalties: give more there" if one.get("penalty") in ends else ""
        click.echo(f"probe {key}: {name} on {layer}: {score}, {one['status']}{edge}")


def torch_device(name: str) -> str | None:
    """The CUDA device, or None for the processor, where the probes need no torch."""
    if name == "cpu":
        return None
    from pipeline.device import pick_device

    device = pick_device(name)
    return None if device.type == "cpu" else str(device)


if __name__ == "__main__":
    main()
