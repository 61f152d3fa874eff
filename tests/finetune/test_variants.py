from __future__ import annotations

from dataclasses import fields

import pytest
import torch

from pipeline.backbones.families import gpt2_spec
from pipeline.backbones.transformer import Transformer
from pipeline.finetune.groups import count_by_group
from pipeline.finetune.loop import finetune
from pipeline.finetune.model import FrozenPretrainedTransformer
from pipeline.finetune.settings import FinetuneSettings, Recipe
from pipeline.finetune.shape import Shape
from pipeline.finetune.variants import HOMOLOGY, VARIANTS, in_words, recipe_of
from tests.finetune.recipe import CPU, settings
from tests.tasks.files import write_tape_json
from tests.tasks.test_homology import homology, parts, places
from tests.tiny import backbone

BASE = {"n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024}


def of(variant: str, **own) -> FinetuneSettings:
    """Settings that leave all to the variant but what is `own`."""
    whole = vars(settings())
    return FinetuneSettings(**whole | dict.fromkeys(VARIANTS["code"], None) | own, variant=variant)


def test_a_variant_sets_every_difference():
    differences = {field.name for field in fields(Recipe)} - {field.name for field in fields(Recipe.__mro__[1])}
    assert all(set(values) == differences for values in VARIANTS.values())
    assert all(VARIANTS["paper"][name] != VARIANTS["code"][name] for name in differences - {"lr"})


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_is_set_beside_the_variant_overrides_it(variant):
    assert vars(recipe_of(of(variant), "x", "path")).items() >= VARIANTS[variant].items()
    own = {
        "position_rows": "all" if variant == "paper" else "used",
        "final_norm": variant == "paper",
        "frozen_dropout": variant == "paper",
        "lr": 3e-3,
        "clip": 2.0,
        "input_dropout": 0.3,
        "adapter_gain": 2.0,
    }
    assert vars(recipe_of(of(variant, **own), "x", "path")).items() >= own.items()
    assert in_words(of(variant, **own), "generated", "package") == ", ".join(
        [variant, *(f"{name} {value}" for name, value in own.items())]
    )
    assert in_words(of(variant), "generated", "package") == variant


def test_the_papers_learning_rate_depends_on_data_and_backbone_and_the_codes_does_not(tmp_path):
    write_tape_json(tmp_path, parts())
    assert homology(tmp_path, format="json").load(places(tmp_path)).source["name"] == HOMOLOGY
    wanted = {("x", "path"): 1e-3, (HOMOLOGY, "path"): 1e-4, ("x", "lstm"): 3e-4}
    for sources, lr in wanted.items():
        assert recipe_of(of("paper"), *sources).lr == lr
        assert recipe_of(of("code"), *sources).lr == 1e-3
        assert recipe_of(of("paper", lr=0.1), *sources).lr == 0.1


@pytest.mark.parametrize(
    ("variant", "wanted"),
    [
        ("paper", {"output": 7_690, "input": 13_056, "layernorm": 36_864, "positions": 49_152}),
        ("code", {"output": 7_690, "input": 13_056, "layernorm": 38_400, "positions": 786_432}),
    ],
)
def test_the_counts_of_grey_cifar_on_gpt2_base(variant, wanted):
    """Worked out by hand from the paper's section 2.2; the code's sum is 845,578."""
    shape = Shape(kind="patches", size=16, length=64, readout=1, answers=1, classes=10)
    with torch.device("meta"):
        body = Transformer(gpt2_spec(BASE))
    model = FrozenPretrainedTransformer(shape, body, recipe_of(of(variant), "CIFAR-10", "hub"))
    assert count_by_group(model) == wanted


def test_gradients_are_clipped_unless_clip_is_off(tokens, tiny_bert, monkeypatch):
    norms = []
    monkeypatch.setattr("torch.optim.Adam.step", lambda self, *rest: norms.append(gradient_norm(self)))
    for clip in (0.01, "off"):
        norms.append(clip)
        finetune(tokens, backbone(tiny_bert), settings(clip=clip, steps=1, evaluate_every=1), CPU, "k")
    assert norms[1] == pytest.approx(0.01, rel=1e-3)
    assert norms[3] > 0.1


def gradient_norm(optimizer: torch.optim.Optimizer) -> float:
    gradients = [parameter.grad for group in optimizer.param_groups for parameter in group["params"]]
    return float(torch.stack([gradient.norm() for gradient in gradients if gradient is not None]).norm())
