from __future__ import annotations

import numpy as np
import pytest
import torch

from pipeline.backbones.load import find_backbone
from pipeline.finetune.attention import draw_attention, first_attention, write_no_map
from pipeline.finetune.batches import load_split
from pipeline.finetune.loop import finetune
from pipeline.finetune.model import FrozenPretrainedTransformer
from pipeline.finetune.shape import shape_of
from tests.architectures import CONFIGS
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


@pytest.mark.parametrize("family", ["t5", "llama", "longformer"])
def test_places_and_shared_heads_of_other_families_count(tokens, family):
    model = FrozenPretrainedTransformer(shape_of(tokens), random_transformer(CONFIGS[family]), settings())
    inputs = load_split(tokens, "test", 0, CPU).inputs
    found = first_attention(model, inputs)
    assert found is not None
    np.testing.assert_allclose(found.sum(-1), 1, rtol=1e-5)
    if family == "longformer":
        assert (found[:, 2, :3] == 0).all(), "beyond its window"


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
