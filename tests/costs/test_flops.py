"""Counted operations against PyTorch's own counter, which watches the real products."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from pipeline.backbones.init import linear_adapter, linear_head
from pipeline.costs.flops import TransformerSizes, finetune_step_flops, forward_flops, head_flops
from tests.tiny import BERT, GPT2, random_transformer

TOKENS, FEATURES, CLASSES, BATCH = 9, 4, 10, 3


def sizes(spec, readout: int) -> TransformerSizes:
    return TransformerSizes(spec.width, spec.layers, spec.inner_width, TOKENS, readout, FEATURES, CLASSES)


@pytest.mark.parametrize("config", [BERT, GPT2], ids=["bert", "gpt2"])
@pytest.mark.parametrize("readout", [1, 4])
def test_forward_is_what_is_executed(config, readout):
    network = random_transformer(config)
    adapter, head = linear_adapter(FEATURES, 32, 1.0, 0), linear_head(32, CLASSES, 0)
    x = torch.randn(BATCH, TOKENS, FEATURES)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        head(network(adapter(x), readout))
    counted = sizes(network.spec, readout)
    assert counter.get_total_flops() == BATCH * (forward_flops(counted) + head_flops(counted))


@pytest.mark.parametrize("config", [BERT, GPT2], ids=["bert", "gpt2"])
@pytest.mark.parametrize("readout", [1, 4])
def test_a_training_step_is_what_is_executed(config, readout):
    network = random_transformer(config)
    for name, parameter in network.named_parameters():
        parameter.requires_grad_("norm" in name or name == "position")
    adapter, head = linear_adapter(FEATURES, 32, 1.0, 0), linear_head(32, CLASSES, 0)
    x = torch.randn(BATCH, TOKENS, FEATURES)
    with FlopCounterMode(display=False) as counter:
        scores = head(network(adapter(x), readout))
        F.cross_entropy(scores.flatten(0, 1), torch.zeros(BATCH * readout, dtype=torch.long)).backward()
    assert counter.get_total_flops() == finetune_step_flops(sizes(network.spec, readout), BATCH)
