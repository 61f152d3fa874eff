"""Every family of networks trains as an FPT: a step's gradients are right, and only what trains moves."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from pipeline.backbones.load import find_backbone
from pipeline.backbones.settings import PathSource
from pipeline.finetune.groups import group_of
from pipeline.finetune.loop import finetune
from pipeline.finetune.model import FrozenPretrainedTransformer, cast_frozen
from pipeline.finetune.shape import shape_of
from tests.architectures import CONFIGS, write_reference
from tests.finetune.recipe import CPU, settings
from tests.tiny import random_transformer

FAMILIES = pytest.mark.parametrize("family", CONFIGS)


@FAMILIES
def test_a_run_moves_what_trains_and_nothing_else(tokens, family, tmp_path):
    write_reference(tmp_path, CONFIGS[family])
    found = find_backbone(PathSource(source="path", path=str(tmp_path)))
    recipe = settings(compute_dtype="bfloat16", steps=2, evaluate_every=2)
    result = finetune(tokens, found, recipe, CPU, "k")
    groups = {group_of(name) for name in result.parameters}
    assert groups == {"output", "layernorm", "input", "positions"} - ({"positions"} if _rotary(family) else set())
    start = FrozenPretrainedTransformer(shape_of(tokens), found.load(), recipe).state_dict()
    assert all(not torch.equal(result.parameters[name], start[name]) for name in result.parameters)


def _rotary(family: str) -> bool:
    return CONFIGS[family]["model_type"] in ("llama", "mistral", "qwen2")


@FAMILIES
def test_the_packed_step_has_the_gradients_of_float32(tokens, family):
    """On a CPU with the products: frozen matrices packed, against the same network in float32 with plain autograd."""
    torch.manual_seed(0)
    shape, recipe = shape_of(tokens), settings(input_dropout=0.0, frozen_dropout=False)
    x = torch.randn(8, shape.length, shape.size)
    gradients = []
    for packed in (False, True):
        network = random_transformer(CONFIGS[family], std=0.1)
        model = FrozenPretrainedTransformer(shape, network, recipe).train()
        if packed:
            cast_frozen(model, CPU)
        with torch.autocast("cpu", torch.bfloat16, enabled=packed):
            scores = model(x)
        F.cross_entropy(scores.float().flatten(0, 1), torch.arange(8).repeat_interleave(scores.shape[1]) % 2).backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    plain, half = gradients
    assert len(plain) == len(half)
    kinked = CONFIGS[family].get("feed_forward_proj", family) == "t5"  # ReLU: rounding turns some units on or off
    assert float((plain - half).norm() / plain.norm()) < (0.15 if kinked else 0.05)
