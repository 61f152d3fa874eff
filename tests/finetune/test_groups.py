from __future__ import annotations

import pytest
import torch

from pipeline.backbones.families import gpt2_spec
from pipeline.backbones.load import find_backbone
from pipeline.backbones.settings import PathSource, RandomSource
from pipeline.backbones.transformer import Transformer
from pipeline.errors import PermafrostError
from pipeline.finetune.groups import choose, group_of, unmatched
from pipeline.finetune.loop import finetune
from pipeline.finetune.model import FrozenPretrainedTransformer
from pipeline.finetune.shape import shape_of
from tests.finetune.recipe import CPU, settings
from tests.tiny import GPT2, backbone, random_transformer

NAMES = [name for name, _ in Transformer(gpt2_spec(GPT2)).named_parameters(prefix="backbone")]


def chosen(*trainable: str, final_norm: bool = True) -> set[str]:
    return choose(NAMES, trainable, layers=3, final_norm=final_norm)


def test_a_group_is_all_that_belongs_to_it():
    assert {group_of(name) for name in chosen("attention")} == {"attention"}
    assert chosen("all") == set(NAMES)
    assert chosen("bias") == {name for name in NAMES if name.endswith("bias")}
    assert chosen("attention", "feedforward", "layernorm", "positions") == set(NAMES)


def test_layers_are_counted_as_python_does():
    assert {name.split(".")[2] for name in chosen("attention[-1]")} == {"2"}
    assert {name.split(".")[2] for name in chosen("layernorm[1:]")} == {"1", "2"}
    assert {name.split(".")[2] for name in chosen("feedforward[:-2]")} == {"0"}
    assert chosen("bias[0]") == {name for name in NAMES if ".blocks.0." in name and name.endswith("bias")}


def test_what_names_nothing_is_found_and_refused_where_it_is_all(tokens):
    assert unmatched(NAMES, ("attention[0]", "recurrent", "layernorm")) == ["recurrent"]
    recipe = settings(trainable=("recurrent",))
    with pytest.raises(PermafrostError, match="recurrent names nothing that this network has"):
        FrozenPretrainedTransformer(shape_of(tokens), random_transformer(GPT2), recipe)


def test_the_final_norm_can_be_left_out():
    gone = chosen("layernorm") - chosen("layernorm", final_norm=False)
    assert gone == {"backbone.final_norm.weight", "backbone.final_norm.bias"}


@pytest.mark.parametrize("entry", ["layernrm", "output[1]", "attention[1", "attention[]", "lora", "lora(0)", "lora(r)"])
def test_what_is_no_group_is_refused(entry):
    with pytest.raises(PermafrostError, match="is not a group; known: output"):
        chosen(entry)


def test_layers_that_are_not_there_are_refused():
    with pytest.raises(PermafrostError, match=r"'attention\[3\]' names no layer of the backbone's 3"):
        chosen("attention[3]")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("entry", ["attention[-1]", "feedforward", "bias", "all"])
def test_a_step_moves_all_that_trains_and_nothing_else(tokens, tiny_bert, entry, dtype):
    recipe = settings(trainable=("output", entry), steps=2, evaluate_every=2, compute_dtype=dtype)
    result = finetune(tokens, backbone(tiny_bert), recipe, CPU, "k")
    names = [name for name, _ in Transformer(backbone(tiny_bert).spec).named_parameters(prefix="backbone")]
    wanted = choose(names, (entry,), layers=2, final_norm=True)
    assert {name for name in result.parameters if name.startswith("backbone.")} == wanted
    start = dict(backbone(tiny_bert).load().named_parameters(prefix="backbone"))
    still = {name for name in wanted - {"backbone.position"} if torch.equal(result.parameters[name], start[name])}
    assert still == set()
    assert all(parameter.dtype == torch.float32 for parameter in result.parameters.values())


def test_without_blocks_the_head_sees_its_own_token_only(tokens, tiny_bert):
    like = PathSource(source="path", path=str(tiny_bert))
    found = find_backbone(RandomSource(source="random", like=like, seed=0, layers=0))
    model = FrozenPretrainedTransformer(shape_of(tokens), found.load(), settings()).eval()
    x = torch.randn(2, 6, 1)
    other = x.clone()
    other[:, 0] = 5.0
    assert torch.equal(model(x), model(other)), "token 0 is not read out, and nothing mixes tokens"
    result = finetune(tokens, found, settings(), CPU, "k")
    assert result.cost.flops > 0
    assert result.metrics["trained_parameters"] == 2 * 32 + 6 * 32 + 2 * 32 + 2 * 32 + 2


@pytest.mark.parametrize("layers", [1, 2])
def test_from_scratch_all_of_it_trains_and_learns(tokens, tiny_bert, layers):
    like = PathSource(source="path", path=str(tiny_bert))
    found = find_backbone(RandomSource(source="random", like=like, seed=0, layers=layers))
    recipe = settings(trainable=("all",), steps=200, evaluate_every=100, lr=3e-3, input_dropout=0.0)
    result = finetune(tokens, found, recipe, CPU, "k")
    block = 4 * (32**2 + 32) + 2 * 32 * 64 + 32 + 64 + 4 * 32
    assert result.metrics["trained_parameters"] == layers * block + 2 * 32 + (6 + 1 + 2) * 32 + 2 * 32 + 2
    assert result.curve[-1].train_loss < 0.8 * result.curve[0].train_loss


def test_more_layers_than_there_are_is_refused(tiny_bert):
    like = PathSource(source="path", path=str(tiny_bert))
    with pytest.raises(PermafrostError, match=r"`layers: 3` of an architecture that has 2"):
        find_backbone(RandomSource(source="random", like=like, seed=0, layers=3))
