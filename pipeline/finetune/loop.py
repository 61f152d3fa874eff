"""Trains the FPT: one number of steps, every random choice a function of the seed and the step."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from jaxtyping import Float, Integer
from torch import Tensor, nn

from pipeline.backbones.load import Backbone
from pipeline.costs.flops import TransformerSizes, finetune_step_flops
from pipeline.costs.record import CostRecord, peak_memory_bytes
from pipeline.device import device_kind
from pipeline.errors import PermafrostError
from pipeline.finetune.model import FrozenPretrainedTransformer, cast_frozen, count_by_group, trained
from pipeline.finetune.settings import FinetuneSettings
from pipeline.progress import progress
from pipeline.tasks.scoring import accuracy
from pipeline.tasks.tokens import Tokens

EVALUATION_BATCH = 256


@dataclass(frozen=True)
class Split:
    """Inputs `(example, token, feature)` and labels `(example, answer)` of a split, in memory."""

    inputs: Float[Tensor, "example token feature"]
    labels: Integer[Tensor, "example answer"]


@dataclass(frozen=True)
class CurvePoint:
    """Where training stands at a step: mean loss since the last point, and validation as a whole."""

    step: int
    train_loss: float
    validation_loss: float
    validation_accuracy: float


@dataclass(frozen=True)
class Finetuned:
    """What a fine-tune gives: metrics and curve are reproducible, the cost is not."""

    metrics: dict[str, Any]
    curve: list[CurvePoint]
    parameters: dict[str, Tensor]
    cost: CostRecord


class NotFinite(PermafrostError):
    """The loss is no longer a number."""


def finetune(
    tokens: Tokens, backbone: Backbone, settings: FinetuneSettings, device: torch.device, key: str
) -> Finetuned:
    """Train on the train split, keep the weights that are best on validation, score test with them once.

    Raises:
        NotFinite: the loss is no longer a number; says at which step.
        PermafrostError: the task has more tokens than the backbone has positions.
    """
    torch.set_num_threads(settings.threads)
    if tokens.kind != "patches":
        raise PermafrostError(f"{tokens.task} is made of ids; the fine-tune takes patches only so far")
    if tokens.length > backbone.spec.positions:
        raise PermafrostError(
            f"{tokens.task} has {tokens.length} tokens, the backbone {backbone.spec.positions} positions"
        )
    half = settings.compute_dtype == "bfloat16"
    accelerator = Accelerator(cpu=device.type == "cpu", mixed_precision="bf16" if half else "no")
    model = FrozenPretrainedTransformer(tokens, backbone.load(), settings)
    counts = count_by_group(model)
    if half:
        cast_frozen(model, accelerator.device)
    optimizer = torch.optim.Adam(trained(model).values(), lr=settings.lr, fused=True)
    model, optimizer = accelerator.prepare(model, optimizer)
    splits = {name: _load(tokens, name, accelerator.device) for name in tokens.splits}
    curve, seconds = _train(accelerator, model, optimizer, splits, settings, key)
    steps, best = curve[-1].step, best_point(curve)
    plain = accelerator.unwrap_model(model)
    metrics = {
        "test_accuracy": _evaluate(model, splits["test"])[0],
        "test_answers": splits["test"].labels.numel(),
        "validation_accuracy": best.validation_accuracy,
        "best_step": best.step,
        "steps": steps,
        "examples_seen": steps * settings.batch_size,
        "trained_parameters": sum(counts.values()),
        "trained_parameters_by_group": counts,
        "floors": tokens.floors,
    }
    parameters = {name: parameter.detach().cpu().contiguous() for name, parameter in trained(plain).items()}
    return Finetuned(
        metrics, curve, parameters, _cost(tokens, backbone, settings, steps, seconds, accelerator.device, key)
    )


def _train(
    accelerator: Accelerator,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    splits: dict[str, Split],
    settings: FinetuneSettings,
    key: str,
) -> tuple[list[CurvePoint], float]:
    """The learning curve and the seconds that the steps took, evaluations not counted.

    The model is left with the weights that were best on validation.
    """
    train, curve, seconds, losses = splits["train"], [], 0.0, []
    best: dict[str, Tensor] = {}
    model.train()
    with progress(f"finetune {key}", settings.steps, "steps") as report:
        for step in range(1, settings.steps + 1):
            start = time.perf_counter()
            rows = batch_rows(len(train.labels), settings.batch_size, settings.seed, step - 1)
            torch.manual_seed(_stream(settings.seed, step))
            losses.append(_step(accelerator, model, optimizer, train, rows, settings.clip))
            seconds += time.perf_counter() - start
            if not np.isfinite(losses[-1]):
                raise NotFinite(f"finetune {key}: the loss is {losses[-1]} at step {step}", mend="lower finetune.lr")
            if step % settings.evaluate_every == 0 or step == settings.steps:
                score, loss = _evaluate(model, splits["validation"])
                curve.append(CurvePoint(step, float(np.mean(losses)), loss, score))
                report(len(losses), f"loss {np.mean(losses):.3f}, validation accuracy {score:.3f}")
                losses = []
                if best_point(curve) is curve[-1]:
                    best = {name: parameter.detach().clone() for name, parameter in trained(model).items()}
                if settings.stop_at is not None and score >= settings.stop_at:
                    break
    with torch.no_grad():
        for name, parameter in trained(model).items():
            parameter.copy_(best[name])
    return curve, seconds


def best_point(curve: list[CurvePoint]) -> CurvePoint:
    """The highest accuracy on validation; among equals the lowest loss there, then the earliest."""
    return max(curve, key=lambda point: (point.validation_accuracy, -point.validation_loss, -point.step))


def _step(
    accelerator: Accelerator,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    train: Split,
    rows: np.ndarray,
    clip: float,
) -> float:
    picked = torch.from_numpy(rows).to(train.inputs.device)
    scores = model(train.inputs[picked])
    loss = F.cross_entropy(scores.flatten(0, 1), train.labels[picked].flatten())
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    optimizer.zero_grad()
    return float(loss.detach())


@torch.no_grad()
def _evaluate(model: nn.Module, split: Split) -> tuple[float, float]:
    """Accuracy and mean cross-entropy over the whole split."""
    model.eval()
    scores = torch.cat([model(part).float() for part in split.inputs.split(EVALUATION_BATCH)])
    model.train()
    score = accuracy(scores.argmax(-1).cpu().numpy(), split.labels.cpu().numpy())
    loss = F.cross_entropy(scores.flatten(0, 1), split.labels.flatten())
    return (0.0 if score is None else score), float(loss)


def batch_rows(examples: int, batch_size: int, seed: int, batch: int) -> Integer[np.ndarray, "row"]:
    """The examples of one batch: epochs are seeded permutations, run together without a gap."""
    positions = np.arange(batch * batch_size, (batch + 1) * batch_size)
    epochs, places = np.divmod(positions, examples)
    orders = {epoch: np.random.default_rng((seed, epoch)).permutation(examples) for epoch in np.unique(epochs)}
    return np.array([orders[epoch][place] for epoch, place in zip(epochs, places, strict=True)])


def _stream(seed: int, step: int) -> int:
    """A seed for the dropout of one step, far from those of other seeds and steps."""
    return int(np.random.SeedSequence((seed, step)).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _load(tokens: Tokens, split: str, device: torch.device) -> Split:
    arrays = tokens.splits[split]
    inputs = torch.from_numpy(tokens.normalise(np.asarray(arrays.inputs[:])))
    return Split(inputs.to(device), torch.from_numpy(arrays.read_labels().astype(np.int64)).to(device))


def _cost(
    tokens: Tokens,
    backbone: Backbone,
    settings: FinetuneSettings,
    steps: int,
    seconds: float,
    device: torch.device,
    key: str,
) -> CostRecord:
    spec, examples = backbone.spec, len(tokens.splits["train"])
    sizes = TransformerSizes(
        spec.width,
        spec.layers,
        spec.inner_width,
        tokens.length,
        tokens.readout,
        tokens.features,
        tokens.answers // tokens.readout * tokens.classes,
    )
    return CostRecord(
        stage="finetune",
        key=key,
        seconds=seconds,
        flops=steps * finetune_step_flops(sizes, settings.batch_size),
        peak_bytes=peak_memory_bytes(),
        device=device_kind(device),
        examples=examples,
        seconds_per_epoch=seconds / steps * examples / settings.batch_size,
    )
