"""Counted operations against PyTorch's own counter, which watches the real products."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from pipeline.backbones.families import FAMILIES
from pipeline.backbones.init import linear_adapter, linear_head
from pipeline.backbones.spec import Spec
from pipeline.costs.flops import (
    TransformerSizes,
    adapter_flops,
    block_flops,
    eigen_flops,
    finetune_step_flops,
    forward_flops,
    gram_flops,
    head_flops,
    logistic_epoch_flops,
    logistic_pass_flops,
    logistic_path_flops,
    ridge_path_flops,
    rotation_flops,
)
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
def test_a_training_step_is_what_is_executed(family, readout, monkeypatch):
    """With PyTorch's own attention, which works scores out again going back; our path on a CPU spares that product."""
    monkeypatch.setattr(Spec, "plain_attention", False)
    network = random_transformer(CONFIGS[family])
    for name, parameter in network.named_parameters():
        parameter.requires_grad_("norm" in name or name == "position")
    adapter, head = linear_adapter(FEATURES, 32, 1.0, 0), linear_head(32, CLASSES, 0)
    x = torch.randn(BATCH, TOKENS, FEATURES)
    with FlopCounterMode(display=False) as counter:
        scores = head(network(adapter(x), readout))
        F.cross_entropy(scores.flatten(0, 1), torch.zeros(BATCH * readout, dtype=torch.long)).backward()
    assert counter.get_total_flops() == finetune_step_flops(sizes(network.spec, readout), BATCH)


def test_moments_and_passes_are_their_products():
    """10 rows of 4 features and 3 scores: 10 of the symmetric product's 16 numbers, and all 12 of the other's."""
    assert gram_flops(10, 4, 3) == 2 * 10 * 10 + 2 * 10 * 12 == 440
    assert logistic_epoch_flops(10, 4, 3) == 2 * (2 * 10 * 4 * 3) == 480
    assert (rotation_flops(4, 3), eigen_flops(4)) == (96, 576)
    assert logistic_pass_flops(10, 4, 3) == 480 + 2 * 96
    assert ridge_path_flops(4, 3, penalties=5) == 576 + 6 * 96
    assert logistic_path_flops(10, 4, 3, penalties=5, epochs=7) == 576 + 10 * 96 + 7 * 672


def test_an_lstm_is_four_gates_from_input_and_state():
    """Width 4, 9 tokens: 4 gates × 4 units × 8 inputs are 128 multiplies and adds a token, whatever is read out."""
    lstm = TransformerSizes(4, 2, 0, 9, 1, 5, 3, recurrent=True)
    assert block_flops(lstm, 1) == block_flops(lstm, 9) == 2 * 9 * 128 == 2304
    assert forward_flops(lstm) == 2 * 9 * 5 * 4 + 2 * 2304
    assert finetune_step_flops(lstm, 1) == 2 * (360 + 4608) + 3 * 24, "no attention; the head has two gradients"


def test_without_layers_there_are_adapter_and_head_alone():
    none = TransformerSizes(4, 0, 16, 9, 2, 5, 3)
    assert forward_flops(none) == adapter_flops(none) == 360
    assert head_flops(none) == 48
    assert finetune_step_flops(none, 10) == 10 * (2 * 360 + 3 * 48)
