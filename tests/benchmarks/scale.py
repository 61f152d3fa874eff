"""What many workers need for many examples, and which part gives out first: a simulation of the engine's own plan.

python -m tests.benchmarks.scale [--rate 20000] [--examples 1000000000] [--json FILE]

Workers take shards one after another, as `pipeline.execution.run` hands them out. Each computes, then writes to
a file system that all share; the driver notes each finished shard. Rates of a worker and of the disk are yours to give.
"""

from __future__ import annotations

import heapq
from pathlib import Path
from typing import Any

import click

from pipeline.features.layout import plan_layout
from tests.benchmarks.rows import finish, row


def simulate(workers: int, shards: int, compute: float, write: float, note: float) -> dict[str, float]:
    """Seconds until the last shard is noted, and how busy each part was on the way.

    Args:
        workers: how many.
        shards: how many, equally large.
        compute: seconds of a worker for a shard.
        write: seconds that the shared file system needs for a shard, one after another.
        note: seconds of the driver for a shard.
    """
    free = [0.0] * workers
    disk = driver = 0.0
    for _ in range(shards):
        computed = heapq.heappop(free) + compute
        disk = max(disk, computed) + write
        driver = max(driver, disk) + note
        heapq.heappush(free, disk)
    busy = {"workers": shards * compute / workers, "file system": shards * write, "driver": shards * note}
    return {"seconds": driver, **{f"{name} busy": seconds / driver for name, seconds in busy.items()}}


@click.command(help=__doc__)
@click.option("--rate", default=20_000.0, show_default=True, help="Examples a second of one worker.")
@click.option("--examples", default=10**9, show_default=True)
@click.option("--width", default=768, show_default=True)
@click.option("--write-gb", default=2.0, show_default=True, help="GB a second that the shared file system takes.")
@click.option("--note", default=0.01, show_default=True, help="Seconds of the driver for a shard.")
@click.option("--json", "json_file", type=click.Path(path_type=Path))
def main(rate: float, examples: int, width: int, write_gb: float, note: float, json_file: Path | None) -> None:
    """Print what 1, 8 and 64 workers need."""
    layout = plan_layout(examples, 1, ("final",), width, "bfloat16", 2**20, 2**16)
    print(
        f"{examples:.0e} examples: {layout.bytes / 1e12:.2f} TB in {layout.shards} shards of {layout.shard_rows} rows"
    )
    compute, write = layout.shard_rows / rate, layout.bytes / layout.shards / (write_gb * 1e9)
    rows: list[dict[str, Any]] = []
    for workers in (1, 8, 64):
        found = simulate(workers, layout.shards, compute, write, note)
        busiest = max((name for name in found if name.endswith("busy")), key=lambda name: found[name])
        print(f"{workers:4d} workers: {found['seconds'] / 3600:8.2f} h, most in use: {busiest} {found[busiest]:.0%}")
        rows.append(row(f"{workers} workers", found["seconds"], "s"))
    finish(rows, json_file)


if __name__ == "__main__":
    main()
