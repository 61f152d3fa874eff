"""What the fine-tune minimises and how what it gives is judged: cross-entropy of classes, squared error of numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Integer
from torch import Tensor

from pipeline.problem import CLASSIFICATION, REGRESSION, Problem
from pipeline.tasks.scoring import accuracy, class_scores, number_scores, r2

Scores = Float[Tensor, "example answer score"]


@dataclass(frozen=True)
class Classes:
    """Answers are class numbers: each has one score a class, the largest wins."""

    problem: Problem = CLASSIFICATION

    def loss(self, scores: Scores, labels: Integer[Tensor, "example answer"]) -> Tensor:
        """Mean cross-entropy of an answer, in nats."""
        return F.cross_entropy(scores.flatten(0, 1), labels.flatten())

    def score(self, scores: Scores, labels: Integer[Tensor, "example answer"]) -> float:
        """Accuracy."""
        return accuracy(scores.argmax(-1).cpu().numpy(), labels.cpu().numpy()) or 0.0

    def tested(self, scores: Scores, labels: Integer[Tensor, "example answer"], seed: int) -> dict[str, Any]:
        """What metrics say of test; the seed is of the bootstrap."""
        return class_scores(scores.argmax(-1).cpu().numpy(), labels.cpu().numpy(), seed)

    def merit(self, score: float | None, loss: float) -> tuple[float, float]:
        """What a choice on validation goes by: the highest accuracy, among equals the lowest loss."""
        return score or 0.0, -loss

    def constants(self) -> dict[str, Tensor]:
        """What must be known beside the parameters to read the model's scores: nothing."""
        return {}


@dataclass(frozen=True)
class Numbers:
    """Answers are numbers: the model's single score of each is `(number - mean) / scale`, by the training answers.

    `scale` is their standard deviation, 1 where they do not vary.
    """

    mean: Float[Tensor, " answer"]
    scale: Float[Tensor, " answer"]
    problem: Problem = REGRESSION

    @classmethod
    def of(cls, labels: Float[Tensor, "example answer"]) -> Numbers:
        """Mean and scale of the training answers."""
        mean, spread = labels.double().mean(0), labels.double().std(0, correction=0)
        varies = (labels != labels[0]).any(0)
        return cls(mean.float(), torch.where(varies, spread, 1.0).float())

    def loss(self, scores: Scores, labels: Float[Tensor, "example answer"]) -> Tensor:
        """Mean squared error of an answer, in squares of `scale`."""
        return F.mse_loss(scores[..., 0], (labels - self.mean) / self.scale)

    def predictions(self, scores: Scores) -> Float[Tensor, "example answer"]:
        """The model's scores as numbers in the answers' own unit."""
        return scores[..., 0] * self.scale + self.mean

    def score(self, scores: Scores, labels: Float[Tensor, "example answer"]) -> float | None:
        """R²; None where the answers do not vary."""
        return r2(self.predictions(scores).cpu().numpy(), labels.cpu().numpy())

    def tested(self, scores: Scores, labels: Float[Tensor, "example answer"], seed: int) -> dict[str, Any]:
        """What metrics say of test; the seed is of the bootstrap."""
        return number_scores(self.predictions(scores).cpu().numpy(), labels.cpu().numpy(), seed)

    def merit(self, score: float | None, loss: float) -> tuple[float, float]:
        """What a choice on validation goes by: the lowest squared error."""
        return -loss, 0.0

    def constants(self) -> dict[str, Tensor]:
        """What must be known beside the parameters to read the model's scores."""
        return {"target_mean": self.mean.cpu(), "target_scale": self.scale.cpu()}


Objective = Classes | Numbers
