"""prepare: turn a task into tokens on disk, with the floors that any result must be seen against."""

from __future__ import annotations

from pathlib import Path

import click

from stages.command import PARAMS, reports_errors, task_option


@click.command()
@task_option
@reports_errors
def main(task: str) -> None:
    """Write data/tokens/TASK: train, validation and test as Zarr arrays."""
    from pipeline.params import Params
    from pipeline.tasks.floors import floors
    from pipeline.tasks.registry import task_settings
    from pipeline.tasks.tokens import write_tokens

    params = Params(PARAMS)
    data = task_settings(params, task).load()
    found = floors(data)
    write_tokens(Path("data/tokens") / task, task, params.plain("tasks", task), data, found)
    counts = ", ".join(f"{len(split.inputs)} {name}" for name, split in data.splits.items())
    click.echo(f"{task}: {counts}; floors on test: {', '.join(f'{name} {score:.3f}' for name, score in found.items())}")


if __name__ == "__main__":
    main()
