from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.backbones.load import find_backbone
from pipeline.finetune.groups import count_by_group
from pipeline.finetune.loop import finetune
from pipeline.finetune.model import FrozenPretrainedTransformer
from pipeline.finetune.shape import shape_of
from tests.backbones.test_lstm import PLAIN, WHOLE
from tests.finetune.recipe import CPU, settings


def test_frozen_it_trains_what_the_fpt_trains_and_named_it_trains_whole(tokens):
    def counts(source, *more):
        recipe = settings(trainable=("output", "layernorm", "input", "positions", *more))
        return count_by_group(FrozenPretrainedTransformer(shape_of(tokens), find_backbone(source).load(), recipe))

    around = {"input": 2 * 16, "output": 2 * 16 + 2}
    assert counts(PLAIN) == around
    assert counts(WHOLE) == around | {"layernorm": 2 * 2 * 16, "positions": 6 * 16}
    assert counts(PLAIN, "bias") == around | {"bias": 2 * 2 * 4 * 16}
    assert counts(PLAIN, "recurrent") == around | {"recurrent": 2 * 4 * (2 * 16 * 16 + 2 * 16)}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_trained_it_learns(tokens, dtype):
    recipe = settings(trainable=("all",), steps=300, evaluate_every=100, lr=1e-2, compute_dtype=dtype)
    result = finetune(tokens, find_backbone(WHOLE), replace(recipe, input_dropout=0.0), CPU, "k")
    assert result.metrics["test_accuracy"] >= 0.85
    length, width, layers, batch = 6, 16, 2, 8
    products = 2 * batch * length * layers * (8 * width**2)
    assert result.cost.flops > 300 * 3 * products, "forward, and the gradients of inputs and of weights"
