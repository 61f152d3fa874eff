"""The steps of one run, from wherever it stands to its end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor, nn

from pipeline.errors import PermafrostError
from pipeline.finetune.batches import Split, dropout_seed
from pipeline.finetune.checkpoints import Checkpoints
from pipeline.finetune.fresh import Stream
from pipeline.finetune.groups import trained
from pipeline.finetune.settings import Recipe
from pipeline.tasks.scoring import accuracy

EVALUATION_BATCH = 256


class NotFinite(PermafrostError):
    """The loss or its gradient is no longer a number."""


@dataclass(frozen=True)
class CurvePoint:
    """Where training stands at a step: mean loss since the last point, and validation as a whole."""

    step: int
    train_loss: float
    validation_loss: float
    validation_accuracy: float


def best_point(curve: list[CurvePoint]) -> CurvePoint:
    """The highest accuracy on validation; among equals the lowest loss there, then the earliest."""
    return max(curve, key=lambda point: (point.validation_accuracy, -point.validation_loss, -point.step))


@dataclass
class Standing:
    """How far a run has come; with model and optimizer all that a checkpoint holds.

    `seconds` are those of the steps, evaluations not counted; `steps_of` counts the steps by how many tokens their
    examples had, padding included.
    """

    step: int = 0
    finished: bool = False
    seconds: float = 0.0
    steps_of: dict[int, int] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)
    curve: list[CurvePoint] = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)


class Training:
    """One run: model, optimizer and where they stand; `splits` are those that it is scored on."""

    def __init__(
        self,
        accelerator: Accelerator,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        train: Split | Stream,
        splits: dict[str, Split],
        settings: Recipe,
    ) -> None:
        self.accelerator, self.model, self.optimizer = accelerator, model, optimizer
        self.train, self.splits, self.settings, self.at = train, splits, settings, Standing()
        self.trained = trained(accelerator.unwrap_model(model))

    def run(self, key: str, checkpoints: Checkpoints | None) -> Iterator[CurvePoint]:
        """Train to the end and yield each new point of the curve; the weights best on validation are left in the model.

        Raises:
            NotFinite: says at which step; the last checkpoints stay.
        """
        state = None if checkpoints is None else checkpoints.load()
        if state is not None:
            self._restore(state)
        self.model.train()
        while not self.at.finished:
            self._step(key)
            if self.at.step % self.settings.evaluate_every == 0 or self.at.step == self.settings.steps:
                yield self._evaluated()
            if checkpoints is not None and (self.at.finished or checkpoints.due(self.at.step)):
                self._save(checkpoints)
        with torch.no_grad():
            for name, parameter in self.trained.items():
                parameter.copy_(self.at.best[name])

    def _step(self, key: str) -> None:
        """One step; nothing is updated from a loss or gradient that is no number."""
        start, settings, accelerator = time.perf_counter(), self.settings, self.accelerator
        step, train = self.at.step + 1, self.train
        rows = train.batch(settings.batch_size, settings.seed, step - 1)
        own = rows[accelerator.process_index :: accelerator.num_processes]
        torch.manual_seed(dropout_seed(settings.seed, step, accelerator.process_index))
        inputs, lengths, labels = train.pick(own, step)
        loss = F.cross_entropy(self.model(inputs, lengths).flatten(0, 1), labels.flatten())
        accelerator.backward(loss)
        most = float("inf") if settings.clip == "off" else settings.clip
        norm = accelerator.clip_grad_norm_(self.trained.values(), most)
        value = float(accelerator.reduce(loss.detach(), "mean"))  # pyright: ignore[reportArgumentType]
        if not np.isfinite(value) or not np.isfinite(float(norm if norm is not None else 0.0)):
            what = f"the loss is {value}, the gradient's norm {float(norm or 0.0)}"
            raise NotFinite(f"finetune {key}: {what} at step {step}", mend="lower finetune.lr")
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.at.step = step
        self.at.steps_of[inputs.shape[1]] = self.at.steps_of.get(inputs.shape[1], 0) + 1
        self.at.losses.append(value)
        self.at.seconds += time.perf_counter() - start

    def _evaluated(self) -> CurvePoint:
        at, settings = self.at, self.settings
        score, loss = self.evaluate("validation")
        point = CurvePoint(at.step, float(np.mean(at.losses)), loss, score)
        at.curve.append(point)
        at.losses = []
        best = best_point(at.curve)
        if best is point:
            at.best = {name: parameter.detach().clone() for name, parameter in self.trained.items()}
        reached = settings.stop_at is not None and score >= settings.stop_at
        since = len(at.curve) - 1 - at.curve.index(best)
        plateau = settings.patience is not None and since >= settings.patience
        at.finished = reached or plateau or at.step >= settings.steps
        return point

    @torch.no_grad()
    def evaluate(self, split: str) -> tuple[float, float]:
        """Accuracy and mean cross-entropy over a whole split."""
        self.model.eval()
        data = self.splits[split]
        scores = torch.cat([self.model(*part).float() for part in data.parts(EVALUATION_BATCH)])
        self.model.train()
        score = accuracy(scores.argmax(-1).cpu().numpy(), data.labels.cpu().numpy())
        loss = F.cross_entropy(scores.flatten(0, 1), data.labels.flatten())
        return (0.0 if score is None else score), float(loss)

    def _save(self, checkpoints: Checkpoints) -> None:
        if not self.accelerator.is_main_process:
            return
        at = {**vars(self.at), "curve": [asdict(point) for point in self.at.curve]}
        weights = {name: parameter.detach() for name, parameter in self.trained.items()}
        checkpoints.save(self.at.step, {"at": at, "weights": weights, "optimizer": self.optimizer.state_dict()})

    def _restore(self, state: dict[str, Any]) -> None:
        device = self.accelerator.device
        at = state["at"]
        best = {name: tensor.to(device) for name, tensor in at["best"].items()}
        self.at = Standing(**{**at, "curve": [CurvePoint(**point) for point in at["curve"]], "best": best})
        with torch.no_grad():
            for name, parameter in self.trained.items():
                parameter.copy_(state["weights"][name])
        self.optimizer.load_state_dict(state["optimizer"])
