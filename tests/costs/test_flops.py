"""Counted operations against PyTorch's own counter, which watches the real products."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from pipeline.backbones.families import FAMILIES
from pipeline.backbones.init import linear_adapter, linear_head
from pipeline.costs.flops import TransformerSizes, finetune_step_flops, forward_flops, head_flops
from tests.architectures import CONFIGS
from tests.tiny import random_transformer

TOKENS, FEATURES, CLASSES, BATCH = 9, 4, 10, 3


def sizes(spec, readout: int) -> TransformerSizes:
    sizes = (spec.width, spec.layers, spec.inner_width, TOKENS, readout, FEATURES, CLASSES)
    return TransformerSizes(*sizes, spec.query_width, spec.key_width, spec.gated)


def test_every_family_is_counted():
    assert {config["model_type"] for config in CONFIGS.values()} >= set(FAMILIES)


@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.parametrize("readout", [1, 4])
def test_forward_is_what_is_executed(family, readout):
    network = random_transformer(CONFIGS[family])
    adapter, head = linear_adapter(FEATURES, 32, 1.0, 0), linear_head(32, CLASSES, 0)
    x = torch.randn(BATCH, TOKENS, FEATURES)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        head(network(adapter(x), readout))
    counted = sizes(network.spec, readout)
    assert counter.get_total_flops() == BATCH * (forward_flops(counted) + head_flops(counted))


@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.parametrize("readout", [1, 4])
def test_a_training_step_is_what_is_executed(family, readout):
    network = random_transformer(CONFIGS[family])
    for name, parameter in network.named_parameters():
        parameter.requires_grad_("norm" in name or name == "position")
    adapter, head = linear_adapter(FEATURES, 32, 1.0, 0), linear_head(32, CLASSES, 0)
    x = torch.randn(BATCH, TOKENS, FEATURES)
    with FlopCounterMode(display=False) as counter:
        scores = head(network(adapter(x), readout))
        F.cross_entropy(scores.flatten(0, 1), torch.zeros(BATCH * readout, dtype=torch.long)).backward()
    assert counter.get_total_flops() == finetune_step_flops(sizes(network.spec, readout), BATCH)
