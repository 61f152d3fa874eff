"""programs: run the looped transformer's library and check every answer. No data set, no training."""

from __future__ import annotations

from pathlib import Path

import click

from stages.command import reports_errors


@click.command()
@reports_errors
def main() -> None:
    """Write metrics/programs.json, a plot of the errors under data/programs, and the cost under data/cost."""
    import torch

    from pipeline.costs.record import Clock, CostRecord, peak_memory_bytes
    from pipeline.errors import PermafrostError
    from pipeline.looped.suite import run_programs

    torch.set_num_threads(1)  # the metrics hold errors, whose last digits depend on it
    clock = Clock()
    with clock.measuring():
        rows = run_programs(Path("metrics/programs.json"), Path("data/programs/errors.png"))
    flops = sum(row["examples"] * row["flops_per_example"] for row in rows)
    examples = sum(row["examples"] for row in rows)
    CostRecord("programs", "all", clock.seconds, flops, peak_memory_bytes(), "cpu", examples).write(Path("data/cost"))
    wrong = [f"{row['name']} in {row['dtype']}" for row in rows if not row["correct"]]
    click.echo(f"{len(rows) - len(wrong)} of {len(rows)} correct in {clock.seconds:.1f} s")
    if wrong:
        raise PermafrostError(f"wrong: {', '.join(wrong)}", mend="a fault in pipeline/looped: run its tests")


if __name__ == "__main__":
    main()
