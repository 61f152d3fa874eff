from __future__ import annotations

import numpy as np
import pytest
import torch

from pipeline.backbones.families import spec_of, tensors_of
from pipeline.backbones.load import find_backbone
from pipeline.backbones.transformer import Transformer
from pipeline.finetune.attention import draw_attention, first_attention, write_no_map
from pipeline.finetune.batches import load_split
from pipeline.finetune.loop import finetune
from pipeline.finetune.model import FrozenPretrainedTransformer
from pipeline.finetune.shape import shape_of
from tests.architectures import CONFIGS, reference
from tests.backbones.test_lstm import PLAIN
from tests.finetune.recipe import CPU, settings
from tests.tiny import BERT, GPT2, backbone, random_transformer


@pytest.mark.parametrize("config", [BERT, GPT2, GPT2 | {"n_layer": 1}], ids=["bert", "gpt2", "one layer"])
def test_the_weights_are_those_of_the_first_layer(tokens, config):
    model = FrozenPretrainedTransformer(shape_of(tokens), random_transformer(config), settings()).train()
    inputs = load_split(tokens, "test", 0, CPU).inputs
    found = first_attention(model, inputs)
    assert model.training
    block, body = model.backbone.blocks[0], model.backbone.eval()
    x = body.embed(model.adapter(inputs))
    q, k, _ = block.attention.qkv(block.norm1(x) if body.spec.prenorm else x).chunk(3, dim=-1)
    q, k = (part.unflatten(-1, (4, 8)).transpose(1, 2) for part in (q, k))
    scores = q @ k.transpose(-1, -2) / 8**0.5
    if body.spec.causal:
        scores = scores.masked_fill(torch.ones(6, 6).triu(1).bool(), -torch.inf)
    torch.testing.assert_close(torch.from_numpy(found), scores.softmax(-1).mean(1)[:, -3:].detach())


@pytest.mark.parametrize("family", ["t5", "llama", "mistral"])
def test_places_and_shared_heads_of_other_families_count(tokens, family):
    """Against the weights that transformers' own code hands out."""
    theirs, spec = reference(CONFIGS[family], attn_implementation="eager"), spec_of(CONFIGS[family])
    body = Transformer(spec)
    body.load_state_dict(tensors_of(CONFIGS[family], theirs.state_dict(), spec))
    model = FrozenPretrainedTransformer(shape_of(tokens), body, settings())
    inputs = load_split(tokens, "test", 0, CPU).inputs
    with torch.no_grad():
        weights = theirs(inputs_embeds=model.adapter(inputs), output_attentions=True).attentions[0]
    np.testing.assert_allclose(first_attention(model, inputs), weights.mean(1)[:, -3:], rtol=1e-3, atol=1e-6)


def test_a_window_is_not_seen_past(tokens):
    model = FrozenPretrainedTransformer(shape_of(tokens), random_transformer(CONFIGS["longformer"]), settings())
    found = first_attention(model, load_split(tokens, "test", 0, CPU).inputs)
    assert found is not None
    assert (found[:, 2, :3] == 0).all()
    np.testing.assert_allclose(found.sum(-1), 1, rtol=1e-5)


@pytest.mark.parametrize("layers", [1, 3])
def test_padding_is_not_looked_at_and_each_example_is_read_at_its_own_end(tokens, layers):
    model = FrozenPretrainedTransformer(shape_of(tokens), random_transformer(GPT2 | {"n_layer": layers}), settings())
    inputs = load_split(tokens, "test", 0, CPU).inputs[:4]
    lengths = torch.tensor([6, 5, 4, 3])
    found = first_attention(model, inputs, lengths)
    assert found is not None
    for row, length in enumerate(lengths.tolist()):
        alone = first_attention(model, inputs[row : row + 1, :length])
        assert alone is not None
        np.testing.assert_allclose(found[row, :, :length], alone[0], rtol=1e-4, atol=1e-6)
        assert (found[row, :, length:] == 0).all()


def test_a_run_hands_out_where_it_looked_and_an_lstm_looks_nowhere(tokens, tiny_bert, tmp_path):
    result = finetune(tokens, backbone(tiny_bert), settings(), CPU, "k")
    assert result.attention is not None
    assert result.attention.shape == (len(tokens.splits["test"]), 3, 6)
    np.testing.assert_allclose(result.attention.sum(-1), 1, rtol=1e-5)
    for name in ("one.png", "two.png"):
        draw_attention(result.attention, "xor-tiny", tmp_path / name)
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()
    write_no_map("a <task>: no map", tmp_path / "new" / "no-map.svg")
    assert "a &lt;task&gt;: no map" in (tmp_path / "new" / "no-map.svg").read_text()
    assert finetune(tokens, find_backbone(PLAIN), settings(), CPU, "k").attention is None
