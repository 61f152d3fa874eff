"""What the fine-tune minimises where answers are numbers: targets standardised by train, answers in their own unit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pipeline.finetune.loop import Work, finetune
from pipeline.finetune.objective import Classes, Numbers
from pipeline.finetune.training import CurvePoint, best_point
from pipeline.tasks.scoring import accuracy_interval
from pipeline.tasks.task import Split, TaskData
from pipeline.tasks.tokens import open_tokens
from pipeline.tasks.writing import write_tokens
from tests.finetune.recipe import CPU, settings
from tests.tiny import backbone

RANDOM = np.random.default_rng(0)


def split(rows: int, answers: int, scale: float) -> Split:
    """Numbers that the inputs' sum over tokens tells, around 1000."""
    inputs = RANDOM.normal(size=(rows, 6, 3)).astype(np.float32)
    return Split.of(inputs, (1000 + scale * inputs.sum(axis=1)[:, :answers]).astype(np.float32))


@pytest.fixture
def numbers(tmp_path):
    """Tokens of a small regression with two answers."""
    splits = {name: split(rows, 2, 30.0) for name, rows in (("train", 64), ("validation", 24), ("test", 24))}
    write_tokens(tmp_path / "it", "it", {}, TaskData("patches", 0, 1, splits, {"name": "made"}), {"train mean": 0.0})
    return open_tokens(tmp_path / "it")


def test_targets_are_standardised_and_predictions_are_in_their_unit():
    labels = torch.tensor([[1.0, 5.0], [3.0, 5.0]])
    objective = Numbers.of(labels)
    assert (objective.mean.tolist(), objective.scale.tolist()) == ([2.0, 5.0], [1.0, 1.0])
    scores = torch.tensor([[[-1.0], [0.0]], [[2.0], [0.0]]])
    assert objective.predictions(scores).tolist() == [[1.0, 5.0], [4.0, 5.0]]
    assert float(objective.loss(scores, labels)) == 0.25
    objective = Numbers.of(torch.tensor([[10.0], [30.0]]))
    assert float(objective.loss(torch.tensor([[[1.0]]]), torch.tensor([[20.0]]))) == 1.0
    assert objective.predictions(torch.tensor([[[1.0]]])).tolist() == [[30.0]]


def test_the_choice_is_by_squared_error_and_of_classes_by_accuracy():
    curve = [CurvePoint(1, 0.0, 0.5, 0.7), CurvePoint(2, 0.0, 0.4, None), CurvePoint(3, 0.0, 0.6, 0.9)]
    assert best_point(curve, Numbers.of(torch.zeros(2, 1))).step == 2
    assert best_point(curve, Classes()).step == 3


def test_classes_have_an_interval_over_whole_examples():
    scores = torch.tensor([[[2.0, 1.0], [0.0, 1.0]], [[1.0, 0.0], [3.0, 0.0]]])
    found = Classes().tested(scores, torch.zeros(2, 2, dtype=torch.long), 0)
    assert found == {"test_accuracy": 0.75, "test_interval": accuracy_interval(np.array([1, 2]), 2, 0)}


def test_it_learns_numbers_and_hands_out_what_reads_its_scores(numbers, tiny_bert):
    recipe = settings(steps=60, evaluate_every=20, batch_size=16, lr=0.01, input_dropout=0.0, frozen_dropout=False)
    result = finetune(numbers, backbone(tiny_bert), recipe, CPU, "k")
    assert result.metrics["test_r2"] > 0.3
    low, high = result.metrics["test_interval"]
    assert low <= result.metrics["test_r2"] <= high
    assert 0 < result.metrics["test_mse"] < 2 * 30**2 * 6
    assert -1 <= result.metrics["test_spearman"] <= 1
    assert not any("accuracy" in name for name in result.metrics)
    labels = numbers.splits["train"].read_labels()
    np.testing.assert_allclose(result.parameters["target_mean"], labels.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(result.parameters["target_scale"], labels.std(axis=0), rtol=1e-5)
    assert result.parameters["head.weight"].shape == (2, 32)


def test_a_run_that_goes_on_from_a_checkpoint_has_the_same_bits(numbers, tiny_bert, tmp_path):
    recipe = settings(steps=12, evaluate_every=4)
    whole = finetune(numbers, backbone(tiny_bert), recipe, CPU, "k")
    work = Work(tmp_path / "work", 5)
    finetune(numbers, backbone(tiny_bert), recipe, CPU, "k", work)
    (newest, *_) = sorted((tmp_path / "work").rglob("*.pt"), reverse=True)
    newest.unlink()
    rest = finetune(numbers, backbone(tiny_bert), recipe, CPU, "k", work)
    assert rest.metrics == whole.metrics
    assert rest.curve == whole.curve
