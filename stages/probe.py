"""probe: train a linear probe on cached features."""

from __future__ import annotations

from pathlib import Path

import click

from stages.command import PARAMS, backbone_option, feature_names, reports_errors, task_option


@click.command()
@task_option
@backbone_option
@click.option(
    "--memory",
    default=1 << 30,
    show_default=True,
    envvar="PERMAFROST_PROBE_MEMORY",
    show_envvar=True,
    help="Bytes of features to keep in memory; more than that is read again for each pass.",
)
@reports_errors
def main(task: str, backbone: str, memory: int) -> None:
    """Write metrics/probe/TASK-BACKBONE.json: what linear models and neighbours make of the cached features."""
    from pipeline.features import open_features
    from pipeline.identity import write_json
    from pipeline.params import Params
    from pipeline.probes.probe import run_probe
    from pipeline.probes.settings import ProbeSettings

    params = Params(PARAMS)
    key = f"{task}-{backbone}"
    settings = params.section("probe", ProbeSettings)
    store = open_features(Path("data/features") / key, expect=feature_names(params, task, backbone))
    metrics, cost = run_probe(store, settings, key, memory)
    write_json(Path("metrics/probe") / f"{key}.json", metrics)
    cost.write(Path("data/cost"))
    for name, one in {metrics["method"]: metrics, **metrics["methods"]}.items():
        score = "–" if one["test_accuracy"] is None else f"{one['test_accuracy']:.3f}"
        click.echo(f"probe {key}: {name} on layer {metrics['layer']}: test accuracy {score}, {one['status']}")


if __name__ == "__main__":
    main()
