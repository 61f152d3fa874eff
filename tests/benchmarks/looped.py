"""How many program-steps a second the SUBLEQ machine makes: `python -m tests.benchmarks.looped`.

A program-step is one instruction of one program. The official code of the paper made 150 a second at n = 23 columns
and 15-bit words on two cores, rebuilding its weights in every loop; that figure is the reference here.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import torch

from pipeline.looped.fast_path import FastPath
from pipeline.looped.isa import Subleq, SubleqProgram, Symbol
from pipeline.looped.layout import Sizes
from pipeline.looped.subleq import SubleqMachine
from tests.benchmarks.rows import finish, row

OFFICIAL_STEPS_PER_SECOND = 150
MUST_FACTOR = 100
SIZES = Sizes(memory=10, code=12, word_bits=15)  # n = 23


def endless_program(sizes: Sizes, seed: int) -> SubleqProgram:
    """Random code that never reaches HALT, so that every step is a full one."""
    rng = random.Random(seed)
    cells, lines = sizes.memory - 1, sizes.code - 1
    code = [Subleq(rng.randrange(cells), rng.randrange(cells), rng.randrange(lines)) for _ in range(lines - 1)]
    code += [Subleq(cells, cells, 0), Subleq(cells, cells, lines)]
    memory = [rng.randint(-(2 ** (sizes.word_bits - 1)), 2 ** (sizes.word_bits - 1) - 1) for _ in range(cells)]
    return SubleqProgram((*memory, 0), tuple(code), sizes.word_bits, {"Z": Symbol(cells, 1)}, {})


def steps_per_second(step: Callable[[Any], Any], state: Any, batch: int, seconds: float, device: str) -> float:
    """Program-steps a second: the best of three runs, each of about `seconds`."""

    def timed(loops: int) -> float:
        nonlocal state
        start = time.perf_counter()
        for _ in range(loops):
            state = step(state)
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        return time.perf_counter() - start

    with torch.inference_mode():
        loops = max(1, round(seconds / max(1e-5, min(timed(1), timed(1), timed(1)))))
        return batch * loops / min(timed(loops) for _ in range(3))


def measure(sizes: Sizes, batch: int, path: str, seconds: float, device: str) -> float:
    """Program-steps a second of one path: `dense`, `fast`, or `graph` (the fast path as a CUDA graph)."""
    machine = SubleqMachine(sizes, device=device)
    x = machine.encode([endless_program(sizes, seed) for seed in range(batch)])
    if path == "dense":
        return steps_per_second(machine.network, x, batch, seconds, device)
    fast = FastPath(machine.network, machine.layout, machine.scale)
    parts = fast.split(x)
    if path == "graph":
        from pipeline.looped.cuda_graph import GraphedStep

        return steps_per_second(GraphedStep(fast, parts), parts, batch, seconds, device)
    return steps_per_second(fast.step, parts, batch, seconds, device)


def plan(device: str, quick: bool) -> list[tuple[Sizes, int, str]]:
    """What is measured: the promise first, then the rate against batch, then against n."""
    paths = ["dense", "fast"] + (["graph"] if device.startswith("cuda") else [])
    batches = [1, 256] if quick else [1, 16, 64, 256, 1024]
    columns = [64, 1024] if quick else [64, 256, 1024, 4096]
    rows = [(SIZES, batch, path) for batch in batches for path in paths]
    for n in columns:
        sizes = Sizes(memory=n // 2, code=n - 1 - n // 2, word_bits=16)
        rows += [(sizes, 1, path) for path in paths]
    return rows


@click.command()
@click.option("--json", "output", type=click.Path(dir_okay=False, path_type=Path), help="Write the rows as JSON.")
@click.option("--device", default="cpu", show_default=True, help="cpu or cuda.")
@click.option("--threads", default=1, show_default=True, help="CPU threads; more wait for each other at these sizes.")
@click.option("--quick", is_flag=True, help="Fewer sizes, shorter runs.")
def main(output: Path | None, device: str, threads: int, quick: bool) -> None:
    """Measure, print a table, and exit with 1 if what must hold does not."""
    torch.set_num_threads(threads)
    rows = []
    for sizes, batch, path in plan(device, quick):
        rate = measure(sizes, batch, path, 0.2 if quick else 0.7, device)
        promised = sizes is SIZES and batch == 256 and path == "fast"
        least = MUST_FACTOR * OFFICIAL_STEPS_PER_SECOND
        name = f"subleq {path}, n={sizes.columns}, {sizes.word_bits}-bit words, batch {batch}, {device}"
        rows.append(row(name, rate, "program-steps/s", at_least=least if promised else None))
    finish(rows, output)


if __name__ == "__main__":
    main()
