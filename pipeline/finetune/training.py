"""The steps of one run, from wherever it stands to its end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from jaxtyping import Float
from torch import Tensor, nn

from pipeline.errors import PermafrostError
from pipeline.finetune.batches import Split, dropout_seed
from pipeline.finetune.checkpoints import Checkpoints
from pipeline.finetune.fresh import Stream
from pipeline.finetune.groups import trained
from pipeline.finetune.objective import Objective
from pipeline.finetune.settings import Recipe
from pipeline.problem import Problem

EVALUATION_BATCH, EVALUATION_TOKENS = 256, 16384
"""Examples run together when a split is scored, and tokens, so that long examples take no more memory than a step."""


class NotFinite(PermafrostError):
    """The loss or its gradient is no longer a number."""


@dataclass(frozen=True)
class CurvePoint:
    """Where training stands at a step: mean loss since the last point, and validation as a whole.

    `validation_score` is accuracy, or R² where answers are numbers, None where they do not vary.
    """

    step: int
    train_loss: float
    validation_loss: float
    validation_score: float | None

    def named(self, problem: Problem) -> dict[str, Any]:
        """The point with its score under the name that it has in a learning curve's file."""
        return {problem.validation if name == "validation_score" else name: value for name, value in vars(self).items()}


def best_point(curve: list[CurvePoint], objective: Objective) -> CurvePoint:
    """The best on validation, as the objective says; among equals the earliest."""
    return max(curve, key=lambda point: (*objective.merit(point.validation_score, point.validation_loss), -point.step))


@dataclass(frozen=True)
class Data:
    """What a run trains on, what for, and the splits that it is scored on."""

    train: Split | Stream
    splits: dict[str, Split]
    objective: Objective


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

    def add(self, other: Standing) -> None:
        """Count another run's steps and seconds here."""
        self.step += other.step
        self.seconds += other.seconds
        for tokens, steps in other.steps_of.items():
            self.steps_of[tokens] = self.steps_of.get(tokens, 0) + steps


class Training:
    """One run: model, optimizer and where they stand."""

    def __init__(
        self,
        accelerator: Accelerator,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        data: Data,
        settings: Recipe,
    ) -> None:
        self.accelerator, self.model, self.optimizer = accelerator, model, optimizer
        self.train, self.splits, self.objective = data.train, data.splits, data.objective
        self.settings, self.at = settings, Standing()
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

    @property
    def best(self) -> CurvePoint:
        """The best point of the curve so far."""
        return best_point(self.at.curve, self.objective)

    @property
    def merit(self) -> tuple[float, float]:
        """How good the best point is, among runs."""
        return self.objective.merit(self.best.validation_score, self.best.validation_loss)

    def _step(self, key: str) -> None:
        """One step; nothing is updated from a loss or gradient that is no number."""
        start, settings, accelerator = time.perf_counter(), self.settings, self.accelerator
        step, train = self.at.step + 1, self.train
        rows = train.batch(settings.batch_size, settings.seed, step - 1)
        own = rows[accelerator.process_index :: accelerator.num_processes]
        torch.manual_seed(dropout_seed(settings.seed, step, accelerator.process_index))
        inputs, lengths, labels = train.pick(own, step)
        loss = self.objective.loss(self.model(inputs, lengths), labels)
        accelerator.backward(loss)
        most = float("inf") if settings.clip == "off" else settings.clip
        norm = accelerator.clip_grad_norm_(self.trained.values(), most)
        value = float(accelerator.reduce(loss.detach(), "mean"))  # pyright: ignore[reportArgumentType]
        if not np.isfinite(value) or not np.isfinite(float(norm if norm is not None else 0.0)):
            what = f"the loss is {value}, the gradient's norm {float(norm or 0.0)}"
            mend = "lower finetune.lr, or the rates of finetune.lr_sweep"
            raise NotFinite(f"finetune {key}: {what} at step {step}", mend=mend)
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
        best = self.best
        if best is point:
            at.best = {name: parameter.detach().clone() for name, parameter in self.trained.items()}
        reached = settings.stop_at is not None and score is not None and score >= settings.stop_at
        since = len(at.curve) - 1 - at.curve.index(best)
        plateau = settings.patience is not None and since >= settings.patience
        at.finished = reached or plateau or at.step >= settings.steps
        return point

    def evaluate(self, split: str) -> tuple[float | None, float]:
        """Score and mean loss over a whole split."""
        scores, labels = self.scores(split), self.splits[split].labels
        return self.objective.score(scores, labels), float(self.objective.loss(scores, labels))

    def tested(self) -> dict[str, Any]:
        """What metrics say of the test split."""
        return self.objective.tested(self.scores("test"), self.splits["test"].labels, self.settings.seed)

    @torch.no_grad()
    def scores(self, split: str) -> Float[Tensor, "example answer score"]:
        """What the model gives for a whole split."""
        self.model.eval()
        data = self.splits[split]
        size = max(1, min(EVALUATION_BATCH, EVALUATION_TOKENS // data.inputs.shape[1]))
        scores = torch.cat([self.model(*part).float() for part in data.parts(size)])
        self.model.train()
        return scores

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
