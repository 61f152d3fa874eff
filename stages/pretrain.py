"""pretrain: train a whole network on bit memory and hand its weights on as a backbone."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import click

from stages.command import PARAMS, backbone_option, device_option, reports_errors, work_option
from stages.finetune import checkpoint_option


@click.command()
@backbone_option
@device_option
@work_option
@checkpoint_option
@reports_errors
def main(backbone: str, device: str, work: Path, checkpoint_every: int) -> None:
    """Write data/pretrained/BACKBONE, a folder for `source: path`, and metrics/pretrain/BACKBONE.json."""
    from pipeline.backbones.export import places_in_checkpoint, write_backbone
    from pipeline.backbones.load import find_backbone
    from pipeline.backbones.settings import backbone_settings
    from pipeline.device import pick_device
    from pipeline.finetune.loop import Work, discard_work, finetune
    from pipeline.finetune.pretrain import PretrainSettings, body_of
    from pipeline.identity import write_json
    from pipeline.params import Params
    from pipeline.tasks.bit_memory import BitMemory
    from pipeline.tasks.tokens import open_tokens
    from pipeline.tasks.writing import write_tokens

    params = Params(PARAMS)
    recipe = params.section("pretrain", PretrainSettings).recipe()
    network = find_backbone(backbone_settings(params, backbone))
    places_in_checkpoint(network)  # refuse now what could not be written in the end
    path = work / "pretrain-tokens" / f"bit_memory-{backbone}"
    task = params.entry("tasks", "bit_memory", BitMemory)
    write_tokens(path, path.name, params.plain("tasks", "bit_memory"), task.load(), {})
    unfinished = Work(work / "pretrain", checkpoint_every)
    result = finetune(open_tokens(path), network, recipe, pick_device(device), backbone, unfinished)
    if os.environ.get("RANK", "0") != "0":
        return

    sha256 = write_backbone(network, body_of(result.parameters), Path("data/pretrained") / backbone)
    write_json(Path("metrics/pretrain") / f"{backbone}.json", {"weights_sha256": sha256, **result.metrics})
    replace(result.cost, stage="pretrain").write(Path("data/cost"))
    discard_work(unfinished, backbone)
    click.echo(f"pretrain {backbone}: bit memory, test accuracy {result.metrics['test_accuracy']:.3f}")
    click.echo(f"as a backbone: {{source: path, path: data/pretrained/{backbone}, sha256: {sha256}}}")


if __name__ == "__main__":
    main()
