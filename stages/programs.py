"""programs: run the looped transformer's library and check every answer. No data set, no training."""

from __future__ import annotations

import time
from pathlib import Path

import click

METRICS = Path("metrics/programs.json")
PLOT = Path("data/programs/errors.png")
COST = Path("data/cost/programs.json")


@click.command()
def main() -> None:
    """Write metrics/programs.json, a plot of the errors under data/programs, and the cost under data/cost."""
    import torch

    from pipeline.errors import PermafrostError
    from pipeline.identity import write_json
    from pipeline.looped.suite import run_programs

    torch.set_num_threads(1)  # the metrics hold errors, whose last digits depend on it
    start = time.perf_counter()
    try:
        rows = run_programs(METRICS, PLOT)
    except PermafrostError as error:
        raise click.ClickException(str(error)) from error
    seconds = time.perf_counter() - start
    flops = sum(row["examples"] * row["flops_per_example"] for row in rows)
    write_json(COST, {"stage": "programs", "key": "all", "seconds": seconds, "flops": flops, "device": "cpu"})
    wrong = [f"{row['name']} in {row['dtype']}" for row in rows if not row["correct"]]
    click.echo(f"{len(rows) - len(wrong)} of {len(rows)} correct in {seconds:.1f} s")
    if wrong:
        raise click.ClickException(f"wrong: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
