"""Trains the FPT: every random choice is a function of the seed and the step, and a run that was killed goes on."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from jaxtyping import Float
from torch import Tensor

from pipeline.backbones.load import Backbone
from pipeline.backbones.lstm_settings import LstmSource
from pipeline.costs.flops import TransformerSizes, finetune_step_flops
from pipeline.costs.record import CostRecord, peak_memory_bytes
from pipeline.device import computed_in, device_kind
from pipeline.errors import PermafrostError
from pipeline.finetune.attention import first_attention
from pipeline.finetune.batches import Split, load_split
from pipeline.finetune.checkpoints import CODE, Checkpoints
from pipeline.finetune.fresh import stream_of
from pipeline.finetune.groups import count_by_group, trained, unmatched
from pipeline.finetune.model import FrozenPretrainedTransformer, cast_frozen
from pipeline.finetune.objective import Classes, Numbers
from pipeline.finetune.settings import Recipe
from pipeline.finetune.shape import Shape, shape_of
from pipeline.finetune.training import CurvePoint, Data, NotFinite, Standing, Training
from pipeline.progress import progress
from pipeline.tasks.tokens import Tokens
from pipeline.work import work_key

SCHEMA = 1
"""Raised when the meaning of a checkpoint changes."""


@dataclass(frozen=True)
class Work:
    """Where checkpoints go, and how many steps lie between two; neither changes a number."""

    folder: Path
    every: int


@dataclass(frozen=True)
class Finetuned:
    """What a fine-tune gives; all but the cost is reproducible.

    `tokens` were trained on in all runs of a sweep together, pads left out. `attention` is the first layer's,
    `(example, readout, token)`, of a task that is read at several tokens.
    """

    metrics: dict[str, Any]
    curve: list[CurvePoint]
    parameters: dict[str, Tensor]
    cost: CostRecord
    tokens: int
    attention: Float[np.ndarray, "example readout token"] | None


def finetune(
    tokens: Tokens,
    backbone: Backbone,
    settings: Recipe,
    device: torch.device,
    key: str,
    work: Work | None = None,
) -> Finetuned:
    """Train on the train split, keep the weights that are best on validation, score test with them once.

    With `lr_sweep` each learning rate has a run, and the one that is best on validation counts; one whose loss is no
    longer a number is out. With `work` a run that was killed goes on at its last checkpoint, to the same bits.

    Raises:
        NotFinite: the loss is no longer a number, at every rate of a sweep; says at which step.
        PermafrostError: the task has more tokens than the backbone has positions, or a split is empty.
    """
    torch.set_num_threads(settings.threads)
    shape = shape_of(tokens)
    drawn = {"train"} if settings.examples == "fresh" else set()
    empty = [name for name, split in tokens.splits.items() if not len(split) and name not in drawn]
    if empty:
        raise PermafrostError(
            f"{tokens.task} has no examples in {' and '.join(empty)}: the fine-tune trains on the first split, is "
            "chosen on the second and scored on the third",
            mend=f"give tasks.{tokens.task} a share or a file for each",
        )
    accelerator = _accelerator(device, settings)
    splits = {name: load_split(tokens, name, settings.seed, accelerator.device) for name in ("validation", "test")}
    if settings.examples == "fresh":
        train = stream_of(tokens, accelerator.device)
        shape = replace(shape, length=max(shape.length, train.length))
    else:
        train = load_split(tokens, "train", settings.seed, accelerator.device)
    objective = Numbers.of(train.labels) if isinstance(train, Split) and not tokens.classes else Classes()
    if shape.length > backbone.spec.positions:
        raise PermafrostError(
            f"{tokens.task} has {shape.length} tokens, the backbone {backbone.spec.positions} positions"
        )
    best, sweep, spent, rates = None, {}, Standing(), settings.lr_sweep or (settings.lr,)
    for lr in rates:
        training = _prepare(accelerator, shape, backbone, Data(train, splits, objective), replace(settings, lr=lr))
        checkpoints, context = None, nullcontext()
        if work is not None:
            run = work_key(_identity(tokens, backbone, training), CODE)
            checkpoints = Checkpoints(work.folder / key / f"lr-{lr:g}", run, work.every)
            context = checkpoints if accelerator.is_main_process else context  # one writes, all read
        try:
            with context:
                accelerator.wait_for_everyone()
                _train(training, key if settings.lr_sweep is None else f"{key} lr {lr:g}", checkpoints)
        except NotFinite as error:
            if best is None and lr == rates[-1]:
                raise
            print(f"{error}; the other rates go on", file=sys.stderr)
            sweep[f"{lr:g}"] = None
        else:
            sweep[f"{lr:g}"] = training.best.validation_score
            if best is None or training.merit > best.merit:
                best = training
        spent.add(training.at)
        del training  # only the best run's network stays
        accelerator.free_memory()
    assert best is not None
    result = _result(tokens, backbone, shape, best, sweep, spent, key)
    accelerator.end_training()
    return result


def discard_work(work: Work, key: str) -> None:
    """Throw the checkpoints of `key` away, once its results are written."""
    shutil.rmtree(work.folder / key, ignore_errors=True)


def world_size() -> int:
    """The number of processes that the launcher started."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def _accelerator(device: torch.device, settings: Recipe) -> Accelerator:
    """Precision and processes; training alone, where a launcher meant several, is refused: accelerate would do it."""
    half = computed_in(device, getattr(torch, settings.compute_dtype)) == torch.bfloat16
    if not half and settings.compute_dtype == "bfloat16":
        print("finetune: in float32, since this CPU has no bfloat16 instructions", file=sys.stderr)
    accelerator = Accelerator(cpu=device.type == "cpu", mixed_precision="bf16" if half else "no")
    wanted, found = world_size(), accelerator.num_processes
    if found != wanted:
        raise PermafrostError(f"{wanted} processes were asked for, but accelerate sees {found}")
    if settings.batch_size % found:
        raise PermafrostError(f"finetune.batch_size is {settings.batch_size}, not a multiple of {found} processes")
    return accelerator


def _prepare(
    accelerator: Accelerator,
    shape: Shape,
    backbone: Backbone,
    data: Data,
    settings: Recipe,
) -> Training:
    table = backbone.load_embedding() if shape.table else None
    model = FrozenPretrainedTransformer(shape, backbone.load(), settings, table)
    for entry in unmatched([name for name, _ in model.named_parameters()], settings.trainable):
        print(f"finetune.trainable: this network has no {entry}", file=sys.stderr)
    if accelerator.mixed_precision == "bf16" and not cast_frozen(model, accelerator.device):
        print("finetune: this CPU has no packed bfloat16 products; training runs without them", file=sys.stderr)
    optimizer = torch.optim.Adam(trained(model).values(), lr=settings.lr, fused=True)
    prepared, optimizer = accelerator.prepare(model, optimizer)
    return Training(accelerator, prepared, optimizer, data, settings)


def _train(training: Training, key: str, checkpoints: Checkpoints | None) -> None:
    done = 0
    with progress(f"finetune {key}", training.settings.steps, "steps") as report:
        for point in training.run(key, checkpoints):
            score = training.objective.problem.said(point.validation_score)
            report(point.step - done, f"loss {point.train_loss:.3f}, validation {score}")
            done = point.step


def _identity(tokens: Tokens, backbone: Backbone, training: Training) -> dict[str, Any]:
    """Everything but the code that decides the bits of a run."""
    return {
        "schema": SCHEMA,
        "tokens": tokens.digest,
        "weights": backbone.weights,
        "settings": asdict(training.settings),
        "processes": training.accelerator.num_processes,
        "versions": {"torch": torch.__version__, "numpy": np.__version__},
        "device": device_kind(training.accelerator.device),
    }


def _result(
    tokens: Tokens,
    backbone: Backbone,
    shape: Shape,
    training: Training,
    sweep: dict[str, float | None],
    spent: Standing,
    key: str,
) -> Finetuned:
    at, settings, problem = training.at, training.settings, training.objective.problem
    counts, best = count_by_group(training.accelerator.unwrap_model(training.model)), training.best
    metrics = {
        **training.tested(),
        "test_answers": training.splits["test"].labels.numel(),
        problem.validation: best.validation_score,
        "best_step": best.step,
        "steps": at.step,
        "lr": settings.lr,
        "processes": training.accelerator.num_processes,
        "examples_seen": at.step * settings.batch_size,
        "trained_parameters": sum(counts.values()),
        "trained_parameters_by_group": counts,
        "floors": tokens.floors,
    }
    if settings.lr_sweep is not None:
        metrics[f"{problem.validation}_by_lr"] = sweep
    parameters = {name: parameter.detach().cpu().contiguous() for name, parameter in training.trained.items()}
    parameters |= training.objective.constants()
    cost = _cost(tokens, backbone, shape, training, spent, counts, key)
    model = training.accelerator.unwrap_model(training.model)
    test = training.splits["test"]
    attention = first_attention(model, test.inputs, test.lengths) if shape.readout > 1 else None
    lengths = tokens.splits["train"].read_lengths()  # none are stored where all examples are drawn afresh
    seen = round(spent.step * settings.batch_size * (lengths.mean() if len(lengths) else tokens.length))
    return Finetuned(metrics, at.curve, parameters, cost, seen, attention)


def _cost(
    tokens: Tokens,
    backbone: Backbone,
    shape: Shape,
    training: Training,
    spent: Standing,
    counts: dict[str, int],
    key: str,
) -> CostRecord:
    """What was spent on all runs of a sweep, and on an epoch of the best.

    Trained matrices cost a product more of their size a step, added ones three.
    """
    spec, settings, at = backbone.architecture, training.settings, training.at
    features = shape.size if shape.kind == "patches" else 0
    sizes = TransformerSizes(
        spec.width,
        spec.layers,
        spec.inner_width,
        0,
        shape.readout,
        features,
        shape.scores,
        spec.query_width,
        spec.key_width,
        spec.gated,
        isinstance(backbone.settings, LstmSource),
    )
    matrices = sum(counts.get(group, 0) for group in ("attention", "feedforward", "recurrent"))
    flops = 0
    for tokens_run, steps in spent.steps_of.items():
        one = finetune_step_flops(replace(sizes, tokens=tokens_run), settings.batch_size)
        flops += steps * (one + 2 * settings.batch_size * tokens_run * (matrices + 3 * counts.get("lora", 0)))
    examples = len(tokens.splits["train"])
    return CostRecord(
        stage="finetune",
        key=key,
        seconds=spent.seconds,
        flops=flops,
        peak_bytes=peak_memory_bytes(),
        device=device_kind(training.accelerator.device),
        examples=examples,
        seconds_per_epoch=at.seconds / at.step * examples / settings.batch_size,
    )
