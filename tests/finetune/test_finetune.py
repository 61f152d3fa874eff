from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from accelerate.state import AcceleratorState

from pipeline import device
from pipeline.errors import PermafrostError
from pipeline.finetune.batches import batch_rows
from pipeline.finetune.groups import count_by_group, group_of
from pipeline.finetune.loop import finetune
from pipeline.finetune.model import FrozenPretrainedTransformer, cast_frozen
from pipeline.finetune.objective import Classes
from pipeline.finetune.shape import shape_of
from pipeline.finetune.training import NotFinite, best_point
from tests.finetune.recipe import CPU, settings
from tests.tiny import backbone


@pytest.fixture
def model(tokens, tiny_bert):
    return FrozenPretrainedTransformer(shape_of(tokens), backbone(tiny_bert).load(), settings())


def test_what_trains_is_counted_by_group(model):
    width, tokens, norms = 32, 6, 2 * 2 + 1
    wanted = {"input": 2 * width, "output": 2 * width + 2, "positions": tokens * width, "layernorm": norms * 2 * width}
    assert count_by_group(model) == wanted


def test_attention_and_feed_forward_never_train(model):
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    assert {name.split(".", 3)[3] for name in frozen if "blocks" in name} == {
        f"{layer}.{kind}" for layer in ("attention.qkv", "attention.out", "up", "down") for kind in ("weight", "bias")
    }
    assert "backbone.token_type" in frozen


@pytest.mark.parametrize("group", ["output", "layernorm", "input", "positions"])
def test_a_step_moves_exactly_the_chosen_group(tokens, tiny_bert, group):
    result = finetune(tokens, backbone(tiny_bert), settings(trainable=(group,), steps=2, evaluate_every=2), CPU, "k")
    before = FrozenPretrainedTransformer(shape_of(tokens), backbone(tiny_bert).load(), settings())
    start = {name: parameter for name, parameter in before.named_parameters() if group_of(name) == group}
    assert result.parameters.keys() == start.keys()
    assert any(not torch.equal(result.parameters[name], start[name]) for name in start)


def test_frozen_weights_are_held_in_half_and_trained_ones_in_full_precision(model):
    cast_frozen(model, CPU)
    dtypes = {name: parameter.dtype for name, parameter in model.named_parameters()}
    assert dtypes["backbone.blocks.1.attention.qkv.weight"] == torch.bfloat16
    assert dtypes["backbone.blocks.0.up.bias"] == torch.bfloat16
    assert all(
        dtypes[name] == torch.float32
        for name in dtypes
        if group_of(name) in ("output", "input", "positions", "layernorm")
    )
    wide = {name for name, parameter in model.named_parameters() if parameter.dtype == torch.float32}
    assert not {name for name in wide if "attention" in name or "up" in name or "down" in name}


def test_dropout_of_the_frozen_body_follows_the_setting(tokens, tiny_bert):
    for on in (True, False):
        model = FrozenPretrainedTransformer(
            shape_of(tokens), backbone(tiny_bert).load(), settings(frozen_dropout=on)
        ).train()
        assert model.training
        assert model.backbone.training is on
        assert model.backbone.blocks[0].drop.training is on


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_two_runs_give_the_same_bits(tokens, tiny_bert, dtype):
    one, two = (finetune(tokens, backbone(tiny_bert), settings(compute_dtype=dtype), CPU, "k") for _ in range(2))
    assert one.metrics == two.metrics
    assert one.curve == two.curve
    assert all(torch.equal(one.parameters[name], two.parameters[name]) for name in one.parameters)


def test_a_cpu_without_bfloat16_trains_in_float32_and_says_so(tokens, tiny_bert, monkeypatch, capsys):
    monkeypatch.setattr(device, "has_bfloat16", lambda _: False)
    half = finetune(tokens, backbone(tiny_bert), settings(compute_dtype="bfloat16"), CPU, "k")
    assert "in float32, since this CPU has no bfloat16 instructions" in capsys.readouterr().err
    AcceleratorState._reset_state(True)
    exact = finetune(tokens, backbone(tiny_bert), settings(compute_dtype="float32"), CPU, "k")
    assert half.curve == exact.curve
    assert all(torch.equal(half.parameters[name], exact.parameters[name]) for name in exact.parameters)


def test_another_seed_gives_another_run(tokens, tiny_bert):
    one, two = (finetune(tokens, backbone(tiny_bert), settings(seed=seed), CPU, "k") for seed in (0, 1))
    assert not torch.equal(one.parameters["head.weight"], two.parameters["head.weight"])


def test_it_learns_what_a_linear_model_cannot(tokens, tiny_bert):
    recipe = settings(steps=400, evaluate_every=100, lr=1e-2, input_dropout=0.0, frozen_dropout=False)
    result = finetune(tokens, backbone(tiny_bert), recipe, CPU, "k")
    assert result.curve[-1].train_loss < 0.5 * result.curve[0].train_loss
    assert result.metrics["test_accuracy"] >= 0.85


def test_it_stops_at_the_wanted_accuracy(tokens, tiny_bert):
    result = finetune(tokens, backbone(tiny_bert), settings(stop_at=0.01, steps=100), CPU, "k")
    assert result.metrics["steps"] == 4
    assert result.metrics["examples_seen"] == 32


def test_the_curve_is_scored_on_the_whole_validation_split(tokens, tiny_bert):
    result = finetune(tokens, backbone(tiny_bert), settings(), CPU, "k")
    answers = tokens.splits["validation"].labels.size
    for point in result.curve:
        assert point.validation_score * answers == pytest.approx(round(point.validation_score * answers))
    assert [point.step for point in result.curve] == [4, 8, 12]


def test_the_weights_that_were_best_on_validation_are_kept(tokens, tiny_bert):
    long = finetune(tokens, backbone(tiny_bert), settings(steps=60, lr=3e-2), CPU, "k")
    best = best_point(long.curve, Classes())
    assert best.step < 60, "the recipe should overshoot"
    assert long.metrics["best_step"] == best.step
    assert long.metrics["validation_accuracy"] == max(point.validation_score for point in long.curve)
    AcceleratorState._reset_state(True)
    short = finetune(tokens, backbone(tiny_bert), settings(steps=best.step, lr=3e-2), CPU, "k")
    assert all(torch.equal(long.parameters[name], short.parameters[name]) for name in long.parameters)


def test_a_loss_that_is_no_number_stops_with_the_step(tokens, tiny_bert):
    with pytest.raises(NotFinite, match=r"the loss is .* at step \d+[\s\S]*lower finetune.lr"):
        finetune(tokens, backbone(tiny_bert), settings(lr=1e30, steps=50), CPU, "k")


def test_too_long_inputs_are_refused(tokens, tiny_bert):
    found = backbone(tiny_bert)
    with pytest.raises(PermafrostError, match=r"has 6 tokens, the backbone 4 positions"):
        finetune(tokens, replace(found, spec=replace(found.spec, positions=4)), settings(), CPU, "k")


def test_batches_are_epochs_of_permutations_without_a_gap():
    rows = np.concatenate([batch_rows(10, 4, seed=0, batch=batch) for batch in range(5)])
    assert sorted(rows[:10]) == sorted(rows[10:]) == list(range(10))
    assert not np.array_equal(rows[:10], rows[10:])
    np.testing.assert_array_equal(rows[4:8], batch_rows(10, 4, seed=0, batch=1))
    assert not np.array_equal(rows[:4], batch_rows(10, 4, seed=1, batch=0))


def test_a_batch_may_be_larger_than_the_split():
    rows = batch_rows(3, 7, seed=0, batch=0)
    assert sorted(rows[:3]) == sorted(rows[3:6]) == [0, 1, 2]
    assert rows[6] in (0, 1, 2)
