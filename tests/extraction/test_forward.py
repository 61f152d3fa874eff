"""The engine's forward pass against the definition: every layer, readout, family, length and kind of product."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pipeline.backbones.transformer import Transformer
from pipeline.errors import PermafrostError
from pipeline.extraction import frozen_attention, products
from pipeline.extraction.forward import Reader, layer_names
from pipeline.extraction.products import PACKED, PLAIN, kernels_for, linear
from tests.architectures import CONFIGS
from tests.tiny import BERT, GPT2, random_transformer

CPU = torch.device("cpu")
HAS_BF16 = kernels_for(CPU, torch.bfloat16) == PACKED
FAMILIES = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
LENGTHS = torch.tensor([9, 4, 1])


def states(network: Transformer, x: Tensor) -> dict[str, Tensor]:
    """All hidden states of one row without padding, by layer name, straight from the definition."""
    hidden = network.embed(x[None])
    found = {"0": hidden[0]}
    for index, block in enumerate(network.blocks, start=1):
        hidden = block(hidden, geometry=network.geometry(len(x), x.device))
        found[str(index)] = hidden[0]
    return found | {"final": network.normalise(hidden)[0]}


def keep(readout: Any, hidden: Tensor, answers: int) -> Tensor:
    """What a readout keeps of one row's hidden states."""
    count = len(hidden)
    if readout == "task":
        return hidden[[max(0, count - answers + i) for i in range(answers)]]
    return {"last": hidden[-1:], "mean": hidden.mean(0, keepdim=True), "max": hidden.amax(0, keepdim=True)}.get(
        readout, torch.cat([hidden, torch.zeros(9 - count, hidden.shape[1])])
    )


@FAMILIES
@torch.no_grad()
def test_every_readout_of_every_layer_is_that_of_each_row_alone(config):
    network = random_transformer(config)
    adapter, inputs = nn.Linear(4, 32), torch.randn(3, 9, 4)
    alone = [states(network, adapter(row[:length])) for row, length in zip(inputs, LENGTHS, strict=True)]
    for readout in ("task", "last", "mean", "max", "all"):
        for names in (("final",), ("0", "final"), ("1",), ("0", "1", "2", "final"), ("0",)):
            found = Reader(adapter, network, names, (readout,)).read(inputs, LENGTHS, answers=2)
            for row, layers in enumerate(alone):
                wanted = torch.stack([keep(readout, layers[name], 2) for name in names], dim=1)
                assert (found[row] - wanted).norm() / wanted.norm() <= 1e-5, (readout, names, row)


@FAMILIES
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("kernels", [PACKED, PLAIN])
@torch.no_grad()
def test_half_precision_stays_within_the_tolerance_of_float32_in_every_layer(config, ragged, kernels, monkeypatch):
    """PLAIN is the path of a GPU without Triton, on a CPU; with it: test_fused.py."""
    if kernels == PACKED and not HAS_BF16:
        pytest.skip("this CPU has no bfloat16 instructions")
    exact = random_transformer(config, std=0.1)
    adapter, inputs = nn.Linear(4, 32), torch.randn(8, 9, 4)
    names = ("0", "1", "2", "final")
    lengths = torch.tensor([9, 9, 8, 7, 5, 4, 3, 1]) if ragged else torch.full((8,), 9)
    wanted = Reader(adapter, exact, names, ("task",)).read(inputs, lengths, 3)
    monkeypatch.setattr(products, "kernels_for", lambda device, dtype: kernels)
    monkeypatch.setattr(frozen_attention, "kernels_for", lambda device, dtype: kernels)
    found = Reader(adapter, exact, names, ("task",), torch.bfloat16).read(inputs, lengths, 3)
    for layer in range(len(names)):
        error = (found[:, :, layer] - wanted[:, :, layer]).norm() / wanted[:, :, layer].norm()
        assert error <= 1.5e-2


@pytest.mark.skipif(not HAS_BF16, reason="this CPU has no bfloat16 instructions")
@pytest.mark.parametrize("activation", [None, "gelu", "gelu_tanh", "relu", "silu"])
def test_packed_products_are_the_products(activation):
    layer = nn.Linear(48, 64).requires_grad_(False)
    x = torch.randn(5, 7, 48)
    half, full = linear(layer, torch.bfloat16, activation)(x), linear(layer, torch.float32, activation)(x)
    assert half.dtype == torch.bfloat16
    assert (half.float() - full).norm() / full.norm() < 5e-3


@pytest.mark.parametrize(("names", "blocks"), [(("1",), 1), (("0",), 0), (("1", "final"), 3)])
def test_blocks_beyond_the_deepest_wanted_layer_are_never_run(names, blocks):
    network = random_transformer(GPT2)
    assert len(Reader(nn.Linear(4, 32), network, names, ("task",)).network.blocks) == blocks


def test_ids_go_through_a_table():
    network = random_transformer(BERT)
    table = nn.Embedding(11, 32).requires_grad_(False)
    ids = torch.randint(0, 11, (3, 9))
    by_id = Reader(table, network, ("final",), ("last",)).read(ids, LENGTHS, 1)
    identity = nn.Linear(32, 32)
    nn.init.eye_(identity.weight)
    nn.init.zeros_(identity.bias)
    by_vector = Reader(identity, network, ("final",), ("last",)).read(table(ids), LENGTHS, 1)
    assert (by_id - by_vector).norm() / by_vector.norm() < 1e-6


def test_all_layers_are_named():
    assert layer_names(("all",), 2) == ("0", "1", "2", "final")
    with pytest.raises(PermafrostError, match="all stands alone"):
        layer_names(("all", 1), 2)
