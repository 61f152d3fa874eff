"""prepare: turn a task into tokens on disk, with the floors that any result must be seen against."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pipeline.problem import REGRESSION, problem_named
from stages.command import PARAMS, reports_errors, task_option, work_option

cache_option = click.option(
    "--cache",
    type=click.Path(file_okay=False, path_type=Path),
    default="data/downloads",
    show_default=True,
    envvar="PERMAFROST_CACHE",
    help="Folder that keeps downloads.",
)
offline_option = click.option(
    "--offline", is_flag=True, envvar="PERMAFROST_OFFLINE", help="Download nothing: say which file is wanted where."
)


@click.command()
@task_option
@work_option
@cache_option
@offline_option
@reports_errors
def main(task: str, work: Path, cache: Path, offline: bool) -> None:
    """Write data/tokens/TASK: train, validation and test as Zarr arrays; and metrics/tasks/TASK.json: its floors."""
    from pipeline.identity import write_json
    from pipeline.params import Params
    from pipeline.tasks.floors import floors_with_notes
    from pipeline.tasks.places import Places, scratch
    from pipeline.tasks.registry import task_settings
    from pipeline.tasks.writing import write_tokens

    params = Params(PARAMS)
    with scratch(Places(cache, work, offline), task) as places:
        data = task_settings(params, task).load(places)
        floors, notes = floors_with_notes(data)
        path = Path("data/tokens") / task
        manifest = write_tokens(path, task, params.plain("tasks", task), data, floors, **notes)
    write_json(Path("metrics/tasks") / f"{task}.json", what_it_is(data.choices, manifest))
    for line in summary(task, data.choices, manifest):
        click.echo(line)


def what_it_is(choices: dict[str, Any], manifest: dict[str, Any]) -> dict[str, Any]:
    """What must be known of a task to judge a score on it; bad rows are counted, the manifest lists them.

    A regression says so, and has its floors' mean squared errors beside their R².
    """
    counts = dict(manifest["counts"])
    if "bad_rows" in counts:
        counts["bad_rows"] = counts["bad_rows"]["count"]
    kept = {name: manifest[name] for name in ("examples", "floors", "repeats")}
    if manifest["problem"] == REGRESSION.name:
        kept |= {"problem": REGRESSION.name, "floors_mse": manifest.get("floors_mse", {})}
    return {"choices": choices, "counts": counts, **kept}


def summary(task: str, choices: dict[str, Any], manifest: dict[str, Any]) -> list[str]:
    """What was written, in a few lines; bad rows that were skipped are listed one by one."""
    problem = problem_named(manifest["problem"])
    parts = {
        task: [f"{number} {name}" for name, number in manifest["examples"].items()],
        "paper against code": [f"{name} {value}" for name, value in choices.items()],
        "floors on test": [f"{name} {problem.cell(score)}" for name, score in manifest["floors"].items()],
        "inputs that repeat": [f"{number} {name}" for name, number in manifest["repeats"].items() if number],
        "on the way": [f"{name} {value}" for name, value in manifest["counts"].items() if name != "bad_rows"],
    }
    lines = [f"{name}: {', '.join(values)}" for name, values in parts.items() if values]
    bad = manifest["counts"].get("bad_rows")
    return [*lines, f"{bad['count']} bad rows skipped:", *bad["listed"]] if bad else lines


if __name__ == "__main__":
    main()
