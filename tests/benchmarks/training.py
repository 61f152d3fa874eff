"""A step of the fine-tune against the official recipe and against its matrix products alone.

python -m tests.benchmarks.training [--json FILE] [--device cuda] [--quick]

All at GPT-2-base shape with random weights, 64 tokens, timed in turns in one process: the official recipe
(transformers' GPT2Model in float32, its dropout on, Adam over all parameters, clipped at 1.0), ours in bfloat16 (in
float32 on a CPU without it), and the products of forward and input gradients. What must hold in seconds was set on a
machine that does 850 GFLOP/s in bfloat16; the ratio to the products alone carries over to others. The batch is 16; on a
GPU 256, since the products of 16 rows take one less than it takes Python to launch them.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import torch
import torch.nn.functional as F

from pipeline.backbones.init import draw_weights
from pipeline.backbones.spec import Spec
from pipeline.backbones.transformer import Transformer
from pipeline.costs.record import peak_memory_bytes
from pipeline.device import computed_in
from pipeline.finetune.groups import trained
from pipeline.finetune.model import FrozenPretrainedTransformer, cast_frozen
from pipeline.finetune.settings import Recipe
from pipeline.finetune.shape import Shape
from tests.benchmarks.clock import interleaved, matmul_flops_per_second, without_launches
from tests.benchmarks.rows import finish, row

BATCH = {"cpu": 16, "cuda": 256}
SHAPE = Shape(kind="patches", size=16, length=64, readout=1, answers=1, classes=10)
BASE = Spec(768, 12, 12, 3072, 1024, 1e-5, "gelu_tanh", True, True, False, 0.1, 0.1, 0.1)
LARGE = replace(BASE, width=1280, layers=36, heads=20, inner_width=5120)
GIB = 2**30


def recipe(dropout: bool, dtype: str, batch_size: int) -> Recipe:
    """The official recipe in our settings."""
    return Recipe(
        trainable=("output", "layernorm", "input", "positions"),
        final_norm=True,
        position_rows="used",
        seed=0,
        steps=1,
        batch_size=batch_size,
        evaluate_every=1,
        examples="stored",
        stop_at=None,
        patience=None,
        lr=1e-3,
        lr_sweep=None,
        clip=1.0,
        adapter_gain=1.41,
        input_dropout=0.1 if dropout else 0.0,
        frozen_dropout=dropout,
        compute_dtype=dtype,  # pyright: ignore[reportArgumentType]
        threads=torch.get_num_threads(),
    )


def batch(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and labels, the labels a function of the inputs so that a loss can fall."""
    inputs = torch.randn(BATCH[device.type], SHAPE.length, SHAPE.size, generator=torch.Generator().manual_seed(0))
    return inputs.to(device), inputs[:, -1, : SHAPE.classes].argmax(-1).to(device)


def ours(spec: Spec, dropout: bool, dtype: str, device: torch.device) -> Callable[[], float]:
    """One step of our fine-tune; gives the loss."""
    with torch.device("meta"):
        backbone = Transformer(spec)
    backbone = backbone.to_empty(device="cpu")
    draw_weights(backbone, seed=0, std=0.02, scale_residual=False)
    model = FrozenPretrainedTransformer(SHAPE, backbone, recipe(dropout, dtype, BATCH[device.type]))
    half = computed_in(device, getattr(torch, dtype)) == torch.bfloat16
    if half:
        cast_frozen(model, device)
    model = model.to(device).train()
    optimizer = torch.optim.Adam(trained(model).values(), lr=1e-3, fused=True)
    inputs, labels = batch(device)

    def step() -> float:
        with torch.autocast(device.type, torch.bfloat16, enabled=half):
            loss = F.cross_entropy(model(inputs).flatten(0, 1).float(), labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained(model).values(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return float(loss.detach())

    return step


def official(spec: Spec, device: torch.device) -> Callable[[], float]:
    """One step of the official code's recipe."""
    from transformers import GPT2Config, GPT2Model

    config = GPT2Config(
        n_embd=spec.width, n_layer=spec.layers, n_head=spec.heads, vocab_size=64, bos_token_id=None, eos_token_id=None
    )
    body = GPT2Model(config)
    for name, parameter in body.named_parameters():
        parameter.requires_grad_("ln_" in name or "wpe" in name)
    first = torch.nn.Sequential(torch.nn.Linear(SHAPE.size, spec.width), torch.nn.Dropout(0.1))
    head = torch.nn.Linear(spec.width, SHAPE.classes)
    model = torch.nn.ModuleList([first, body, head]).to(device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    inputs, labels = batch(device)

    def step() -> float:
        hidden = body(inputs_embeds=first(inputs), use_cache=False).last_hidden_state
        loss = F.cross_entropy(head(hidden)[:, -1], labels)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return float(loss.detach())

    return step


def products(spec: Spec, device: torch.device) -> Callable[[], Any]:
    """The blocks' matrix products, forward and for the gradient of the input, on dense operands."""
    rows, wide = BATCH[device.type] * SHAPE.length, (3 * spec.width, spec.width, spec.inner_width)
    pairs = [(spec.width, wide[0]), (spec.width, wide[1]), (spec.width, wide[2]), (wide[2], spec.width)]
    options: dict[str, Any] = {"dtype": computed_in(device, torch.bfloat16), "device": device}
    made = [
        (torch.randn(rows, i, **options), torch.randn(o, i, **options), torch.randn(rows, o, **options))
        for _ in range(spec.layers)
        for i, o in pairs
    ]

    @torch.no_grad()
    def step() -> torch.Tensor:
        out = made[0][0]
        for x, weight, gradient in made:
            F.linear(x, weight)
            out = gradient @ weight
        return out

    return without_launches(step, device)


def losses(spec: Spec, device: torch.device, steps: int) -> tuple[float, float]:
    """Without dropout, after `steps` steps: ours in bfloat16, and in float32."""
    found = []
    for dtype in ("bfloat16", "float32"):
        step = ours(spec, False, dtype, device)
        found.append([step() for _ in range(steps)][-1])
    return found[0], found[1]


def large_peak(spec: Spec, threads: int, queue: Any) -> None:
    """Put the peak memory in bytes of a process that makes one step at `spec`."""
    torch.set_num_threads(threads)
    ours(spec, True, "bfloat16", torch.device("cpu"))()
    queue.put(peak_memory_bytes())


def speed_rows(spec: Spec, device: torch.device, rounds: int, promised: bool) -> list[dict[str, Any]]:
    """Each kind of step, in turns."""
    steps: dict[str, Callable[[], Any]] = {
        "official": official(spec, device),
        "ours": ours(spec, True, "bfloat16", device),
        "products": products(spec, device),
    }
    official_seconds, own, bare = interleaved(steps, rounds, device).values()
    cpu = promised and device.type == "cpu"
    tokens = BATCH[device.type] * SHAPE.length
    flops = 4 * tokens * spec.layers * (4 * spec.width**2 + 2 * spec.width * spec.inner_width)
    return [
        row("official recipe, a step", official_seconds, "s"),
        row("ours, a step", own, "s", at_most=0.65 if cpu else None),
        row("products alone", bare, "s"),
        row("products alone", flops / bare / 1e9, "GFLOP/s"),
        row("official over ours", official_seconds / own, "times", at_least=11 if cpu else None),
        row("ours over products alone", own / bare, "times"),
        row("ours, of the rate of the products", bare / own, "share", at_least=0.45 if not cpu and promised else None),
    ]


@click.command()
@click.option("--json", "output", type=click.Path(dir_okay=False, path_type=Path), help="Write the rows as JSON.")
@click.option("--device", default="cpu", show_default=True, help="cpu or cuda.")
@click.option("--threads", default=2, show_default=True, help="CPU threads.")
@click.option("--quick", is_flag=True, help="Two layers in place of 12, no large shape: nothing is promised of it.")
def main(output: Path | None, device: str, threads: int, quick: bool) -> None:
    """Measure, print a table, and exit with 1 if what must hold does not."""
    torch.set_num_threads(threads)
    place, spec = torch.device(device), replace(BASE, layers=2) if quick else BASE
    rows = speed_rows(spec, place, 3 if quick else 5, promised=not quick)
    if place.type == "cuda":
        rows.append(row("one 8192³ bf16 product", matmul_flops_per_second(place) / 1e9, "GFLOP/s"))
    half, full = losses(spec, place, 5 if quick else 20)
    rows.append(row("loss without dropout, bfloat16 against float32", abs(half / full - 1), "relative", at_most=0.02))
    if not quick and place.type == "cpu":
        context = multiprocessing.get_context("spawn")
        queue = context.Queue()
        child = context.Process(target=large_peak, args=(LARGE, threads, queue))
        child.start()
        rows.append(row("GPT-2-large shape, peak memory of a step", queue.get() / GIB, "GiB", at_most=24))
        child.join()
    finish(rows, output)


if __name__ == "__main__":
    main()
