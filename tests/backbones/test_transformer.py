"""Our one transformer against transformers' own models, layer by layer."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model

from pipeline.backbones.families import spec_of, tensors_of
from pipeline.backbones.transformer import Transformer
from pipeline.errors import PermafrostError
from tests.tiny import BERT, GPT2, random_transformer


def reference(config: dict) -> torch.nn.Module:
    """transformers' model of the same family, with large random weights."""
    kept = {name: value for name, value in config.items() if name != "model_type"}
    torch.manual_seed(0)
    if config["model_type"] == "bert":
        model = BertModel(BertConfig(**kept), add_pooling_layer=False)
    else:
        model = GPT2Model(GPT2Config(**kept))
    for parameter in model.parameters():
        parameter.data.normal_(0.0, 0.3)
    return model.eval()


def ours(config: dict, model: torch.nn.Module) -> Transformer:
    spec = spec_of(config)
    network = Transformer(spec)
    network.load_state_dict(tensors_of(config, dict(model.state_dict()), spec))
    return network.eval()


def relative(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("config", [BERT, GPT2], ids=["bert", "gpt2"])
@torch.no_grad()
def test_every_layer_equals_transformers_in_float32(config):
    theirs = reference(config)
    network = ours(config, theirs)
    x = torch.randn(3, 9, 32)
    wanted = theirs(inputs_embeds=x, output_hidden_states=True)
    blocks: list[Tensor] = []
    layers = theirs.encoder.layer if config["model_type"] == "bert" else theirs.h
    hooks = [
        layer.register_forward_hook(lambda _, __, out: blocks.append(out if isinstance(out, Tensor) else out[0]))
        for layer in layers
    ]
    theirs(inputs_embeds=x)
    for hook in hooks:
        hook.remove()

    hidden = network.embed(x)
    assert relative(hidden, wanted.hidden_states[0]) <= 1e-5
    for block, out in zip(network.blocks, blocks, strict=True):
        hidden = block(hidden)
        assert relative(hidden, out) <= 1e-5
    assert relative(network.normalise(hidden), wanted.last_hidden_state) <= 1e-5


@pytest.mark.parametrize("config", [BERT, GPT2], ids=["bert", "gpt2"])
@pytest.mark.parametrize("last", [1, 4, 9])
@torch.no_grad()
def test_computing_only_the_last_tokens_changes_nothing(config, last):
    network = random_transformer(config)
    x = torch.randn(3, 9, 32)
    whole = network(x, 9)
    assert relative(network(x, last), whole[:, -last:]) <= 1e-5


@pytest.mark.parametrize("config", [BERT, GPT2], ids=["bert", "gpt2"])
@torch.no_grad()
def test_a_padded_row_equals_the_row_alone(config):
    network = random_transformer(config)
    row = torch.randn(1, 5, 32)
    padded = torch.cat([row, torch.full((1, 4, 32), 7.0)], dim=1)
    mask = torch.tensor([[True] * 5 + [False] * 4])
    hidden, alone = network.embed(padded), network.embed(row)
    for block in network.blocks:
        hidden, alone = block(hidden, mask=mask), block(alone)
    assert torch.isfinite(hidden).all()
    assert relative(hidden[:, :5], alone) <= 1e-5


def test_a_causal_network_does_not_look_ahead():
    network = random_transformer(GPT2)
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


def test_a_checkpoint_that_lacks_a_tensor_is_refused():
    state = dict(reference(BERT).state_dict())
    del state["encoder.layer.1.output.dense.bias"]
    with pytest.raises(PermafrostError, match=r"no tensor 'encoder.layer.1.output.dense.bias'"):
        tensors_of(BERT, state, spec_of(BERT))
