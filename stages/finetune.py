"""finetune: train the full FPT, whose every hidden state changes, so that nothing can be cached."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import click

from stages.command import PARAMS, backbone_option, device_option, reports_errors, task_option, work_option

checkpoint_option = click.option(
    "--checkpoint-every",
    type=click.IntRange(min=1),
    default=200,
    show_default=True,
    envvar="PERMAFROST_CHECKPOINT_EVERY",
    show_envvar=True,
    help="Steps between two checkpoints: what a crash can cost.",
)


@click.command()
@task_option
@backbone_option
@device_option
@work_option
@checkpoint_option
@reports_errors
def main(task: str, backbone: str, device: str, work: Path, checkpoint_every: int) -> None:
    """Write metrics/finetune/TASK-BACKBONE.json, its learning curve, the trained parameters, and what attends where."""
    from safetensors.torch import save_file

    from pipeline.backbones.load import find_backbone
    from pipeline.backbones.settings import backbone_settings
    from pipeline.costs.meters import EnergyMeter, measured
    from pipeline.device import pick_device
    from pipeline.finetune.attention import draw_attention, write_no_map
    from pipeline.finetune.loop import Work, discard_work, finetune
    from pipeline.finetune.settings import FinetuneSettings
    from pipeline.finetune.variants import in_words, recipe_of
    from pipeline.identity import write_json
    from pipeline.params import Params
    from pipeline.tasks.tokens import open_tokens

    params, energy = Params(PARAMS), EnergyMeter()
    key = f"{task}-{backbone}"
    settings = params.section("finetune", FinetuneSettings)
    source = backbone_settings(params, backbone)
    unfinished = Work(work / "finetune", checkpoint_every)
    tokens = open_tokens(Path("data/tokens") / task)
    kinds = (tokens.source["name"], source.source)
    recipe, words = recipe_of(settings, *kinds), in_words(settings, *kinds)
    result = finetune(tokens, find_backbone(source), recipe, pick_device(device), key, unfinished)
    if os.environ.get("RANK", "0") != "0":
        return  # of several processes under torchrun the first one writes

    weights, curve = Path("data/finetuned") / f"{key}.safetensors", Path("metrics/curves") / f"{key}.csv"
    pictures = Path("data/attention") / key
    for folder in (weights.parent, curve.parent):
        folder.mkdir(parents=True, exist_ok=True)
    if result.attention is not None:
        draw_attention(result.attention, key, pictures / "first-layer.png")
    else:
        lacking = f"{task} is read at one token" if tokens.readout == 1 else f"{backbone} has no attention"
        write_no_map(f"{key}: no map of attention, {lacking}", pictures / "no-map.svg")
    save_file(result.parameters, weights)
    with curve.open("w", newline="", encoding="utf-8") as file:
        points = [point.named(tokens.problem) for point in result.curve]
        writer = csv.DictWriter(file, points[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(points)
    write_json(Path("metrics/finetune") / f"{key}.json", {"recipe": words, **result.metrics})
    measured(result.cost, energy, result.tokens).write(Path("data/cost"))
    discard_work(unfinished, key)
    groups = ", ".join(f"{count:,} {group}" for group, count in result.metrics["trained_parameters_by_group"].items())
    score = tokens.problem.said(result.metrics[tokens.problem.test])
    click.echo(f"finetune {key}: test {score}; trained {groups}")
    click.echo(f"recipe: variant {words}")


if __name__ == "__main__":
    main()
