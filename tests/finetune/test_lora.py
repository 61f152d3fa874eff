from __future__ import annotations

import pytest
import torch

from pipeline.errors import PermafrostError
from pipeline.finetune.groups import count_by_group
from pipeline.finetune.loop import finetune
from pipeline.finetune.lora import add_lora
from pipeline.finetune.model import FrozenPretrainedTransformer
from pipeline.finetune.shape import shape_of
from tests.finetune.recipe import CPU, settings
from tests.tiny import GPT2, backbone, random_transformer

WIDTH = 32


def with_update(*entries: str, layers: int = 3):
    """A tiny GPT-2 with drawn updates, and the same with each update added into its matrix."""
    model, merged = random_transformer(GPT2 | {"n_layer": layers}), random_transformer(GPT2 | {"n_layer": layers})
    add_lora(model, ("output", *entries), seed=0)
    generator = torch.Generator().manual_seed(1)
    for block, plain in zip(model.blocks, merged.blocks, strict=True):
        if not isinstance(block.attention.qkv, torch.nn.Linear):
            a, b = (getattr(block.attention.qkv, f"lora_{part}")["default"].weight for part in "AB")
            b.data.normal_(generator=generator)
            plain.attention.qkv.weight.data += b.data @ a.data
    return model, merged


@pytest.mark.parametrize("last", [1, 6])
@pytest.mark.parametrize("entry", ["lora(4)", "lora(2)[-1]", "lora(3)[:2]"])
def test_the_update_is_added_to_the_matrix_in_every_block_and_for_every_token(entry, last):
    model, merged = with_update(entry)
    x = torch.randn(2, 6, WIDTH, generator=torch.Generator().manual_seed(2))
    plain = random_transformer(GPT2)(x, last)
    torch.testing.assert_close(model(x, last), merged(x, last))
    assert not torch.allclose(model(x, last), plain)


def test_it_changes_nothing_before_it_has_trained():
    model = random_transformer(GPT2)
    x = torch.randn(2, 6, WIDTH)
    before = model(x, 1)
    add_lora(model, ("lora(4)",), seed=0)
    torch.testing.assert_close(model(x, 1), before)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_run_moves_the_updates_and_nothing_else_of_the_body(tokens, tiny_bert, dtype):
    recipe = settings(trainable=("output", "lora(4)"), compute_dtype=dtype)
    model = FrozenPretrainedTransformer(shape_of(tokens), backbone(tiny_bert).load(), recipe)
    assert count_by_group(model) == {"output": 2 * WIDTH + 2, "lora": 2 * 4 * (WIDTH + 3 * WIDTH)}
    result = finetune(tokens, backbone(tiny_bert), recipe, CPU, "k")
    moved = {name for name in result.parameters if not name.startswith("head.")}
    assert len(moved) == 4
    assert all(".lora_" in name and bool((result.parameters[name] != 0).any()) for name in moved)


def test_two_ranks_or_no_attention_are_refused(tokens, tiny_bert):
    with pytest.raises(PermafrostError, match=r"asks for ranks \[2, 4\] at once"):
        add_lora(random_transformer(GPT2), ("lora(2)[0]", "lora(4)[1]"), seed=0)
    with pytest.raises(PermafrostError, match=r"'lora\(2\)\[3\]' names no layer of the backbone's 3"):
        add_lora(random_transformer(GPT2), ("lora(2)[3]",), seed=0)
    from pipeline.backbones.lstm import draw_lstm
    from tests.backbones.test_lstm import PLAIN

    with pytest.raises(PermafrostError, match="a backbone without attention"):
        add_lora(draw_lstm(PLAIN), ("lora(2)",), seed=0)
