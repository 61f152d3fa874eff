"""Our one transformer against transformers' own models, layer by layer."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pipeline.backbones.families import embedding_of, spec_of, tensors_of
from pipeline.backbones.init import draw_weights
from pipeline.backbones.transformer import Transformer
from pipeline.errors import PermafrostError
from tests.architectures import CONFIGS, reference, reference_states, write_reference
from tests.tiny import BERT, backbone, random_transformer

FAMILIES = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


def relative(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


@FAMILIES
@torch.no_grad()
def test_every_layer_equals_transformers_in_float32(config, tmp_path):
    x = torch.randn(3, 9, 32)
    wanted = reference_states(write_reference(tmp_path, config), x)
    network = backbone(tmp_path).load()
    hidden = network.embed(x)
    found = [hidden]
    for block in network.blocks:
        hidden = block(hidden, geometry=network.geometry(9, x.device))
        found.append(hidden)
    found.append(network.normalise(hidden))
    assert len(found) == len(wanted)
    for one, two in zip(found, wanted, strict=True):
        assert relative(one, two) <= 1e-5


@FAMILIES
@pytest.mark.parametrize("last", [1, 4, 9])
@torch.no_grad()
def test_computing_only_the_last_tokens_changes_nothing(config, last):
    network = random_transformer(config)
    x = torch.randn(3, 9, 32)
    whole = network(x, 9)
    assert relative(network(x, last), whole[:, -last:]) <= 1e-5


@FAMILIES
@torch.no_grad()
def test_a_padded_row_equals_the_row_alone(config):
    network = random_transformer(config)
    row = torch.randn(1, 5, 32)
    padded = torch.cat([row, torch.full((1, 4, 32), 7.0)], dim=1)
    mask = torch.tensor([[True] * 5 + [False] * 4])
    hidden, alone = network.embed(padded), network.embed(row)
    for block in network.blocks:
        hidden = block(hidden, mask=mask, geometry=network.geometry(9, row.device))
        alone = block(alone, geometry=network.geometry(5, row.device))
    assert torch.isfinite(hidden).all()
    assert relative(hidden[:, :5], alone) <= 1e-5


@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral"])
def test_a_causal_network_does_not_look_ahead(name):
    network = random_transformer(CONFIGS[name])
    x = torch.randn(1, 9, 32)
    changed = x.clone()
    changed[:, 5:] += 1
    assert torch.equal(network(x, 9)[:, :5], network(changed, 9)[:, :5])
    assert not torch.equal(network(x, 9)[:, 5:], network(changed, 9)[:, 5:])


def test_an_unknown_family_or_activation_is_named():
    with pytest.raises(PermafrostError, match=r"model_type 'mamba' is not supported; known: gpt2, bert"):
        spec_of({"model_type": "mamba"})
    with pytest.raises(PermafrostError, match=r"activation 'swish9' is not supported"):
        spec_of({**BERT, "hidden_act": "swish9"})


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("longformer", {"attention_window": [4, 8]}, r"windows that differ by layer are not supported: \[4, 8\]"),
        ("llama", {"rope_parameters": {"rope_type": "yarn"}}, r"type 'yarn' are not supported; known: default, llama3"),
        ("llama", {"attention_bias": True}, "a Llama with biases"),
        ("bert", {"is_decoder": True}, "bert with is_decoder: True is not supported; only False is"),
        ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type: relative_key"),
        ("gpt2", {"scale_attn_weights": False}, "gpt2 with scale_attn_weights: False is not supported; only True is"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx: True"),
        (
            "qwen2",
            {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
            "only some have a window are not supported: full_attention, sliding_attention",
        ),
    ],
)
def test_a_choice_that_is_not_supported_is_refused_and_not_ignored(name, change, message):
    with pytest.raises(PermafrostError, match=message):
        spec_of(CONFIGS[name] | change)


def test_vit_reads_no_ids():
    with pytest.raises(PermafrostError, match="a family without words"):
        embedding_of(CONFIGS["vit"], {})


@FAMILIES
def test_drawn_weights_leave_nothing_undrawn(config):
    network = Transformer(spec_of(config))
    for parameter in network.parameters():
        parameter.data.fill_(torch.nan)
    draw_weights(network, seed=0, std=0.02, scale_residual=True)
    assert all(torch.isfinite(parameter).all() for parameter in network.parameters())
    if network.relative is not None:
        assert float(network.relative.weight.detach().std()) > 0.01


def test_a_checkpoint_that_lacks_a_tensor_is_refused():
    state = dict(reference(BERT).state_dict())
    del state["encoder.layer.1.output.dense.bias"]
    with pytest.raises(PermafrostError, match=r"no tensor 'encoder.layer.1.output.dense.bias'"):
        tensors_of(BERT, state, spec_of(BERT))
