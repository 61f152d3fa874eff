"""probe: train a linear probe on cached features."""

from __future__ import annotations

from pathlib import Path

import click

from stages.command import PARAMS, backbone_option, feature_names, reports_errors, task_option


@click.command()
@task_option
@backbone_option
@reports_errors
def main(task: str, backbone: str) -> None:
    """Write metrics/probe/TASK-BACKBONE.json: accuracy of logistic regression on the cached features."""
    from pipeline.features import open_features
    from pipeline.identity import write_json
    from pipeline.params import Params
    from pipeline.probes.probe import run_probe
    from pipeline.probes.settings import ProbeSettings

    params = Params(PARAMS)
    key = f"{task}-{backbone}"
    settings = params.section("probe", ProbeSettings)
    store = open_features(Path("data/features") / key, expect=feature_names(params, task, backbone))
    metrics, cost = run_probe(store, settings, key)
    write_json(Path("metrics/probe") / f"{key}.json", metrics)
    cost.write(Path("data/cost"))
    click.echo(f"probe {key}: test accuracy {metrics['test_accuracy']:.3f}, penalty {metrics['penalty']}")


if __name__ == "__main__":
    main()
