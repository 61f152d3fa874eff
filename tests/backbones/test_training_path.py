"""What a training step computes in its own way on a CPU, against the definitions."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.backbones.attention import attend
from pipeline.backbones.dropout import kept_scale, masks
from pipeline.backbones.gelu import gelu_tanh
from pipeline.backbones.packed import PackedLinear, can_pack, pack_frozen
from pipeline.backbones.transformer import Transformer
from tests.architectures import CONFIGS, reference
from tests.tiny import GPT2, random_transformer

HEADS, WIDTH, TOKENS = 4, 32, 6
needs_packing = pytest.mark.skipif(not can_pack(), reason="this CPU has no packed bfloat16 products")


def plain_attention(q: Tensor, kv: Tensor, allowed: Tensor | None, factor: Tensor | float) -> Tensor:
    """The definition, by autograd."""
    k, v = kv.chunk(2, -1)
    q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (q, k, v))
    scores = q @ k.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    return (scores.softmax(-1) * factor @ v).transpose(1, 2).flatten(-2)


@pytest.mark.parametrize("probability", [0.0, 0.3])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("last", [2, TOKENS])
def test_attention_and_its_gradients_equal_the_definition(probability, causal, last):
    torch.manual_seed(1)
    q, kv = torch.randn(3, last, WIDTH), torch.randn(3, TOKENS, 2 * WIDTH)
    allowed = torch.ones(1, 1, last, TOKENS, dtype=torch.bool).tril(TOKENS - last) if causal else None
    whole = last == TOKENS
    inputs = [torch.cat([q, kv], -1).requires_grad_()] if whole else [q.requires_grad_(), kv.requires_grad_()]
    torch.manual_seed(2)
    found = attend(None if whole else inputs[0], inputs[-1], HEADS, allowed, probability)
    torch.manual_seed(2)
    shape = torch.Size((3 * HEADS, last, TOKENS))
    factor = masks(shape, probability).float().unflatten(0, (3, HEADS)) if probability else 1.0
    parts = inputs[0].split([WIDTH, 2 * WIDTH], -1) if whole else inputs
    wanted = plain_attention(*parts, allowed, factor)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    direction = torch.randn_like(wanted)
    for one, two in zip(
        torch.autograd.grad(found, inputs, direction), torch.autograd.grad(wanted, inputs, direction), strict=True
    ):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


def test_masks_drop_the_wanted_share_and_keep_the_mean():
    drawn = masks(torch.Size((1000, 333)), 0.1).float()
    scale = float(kept_scale(0.1))
    assert set(drawn.unique().tolist()) == {0.0, scale}
    assert float((drawn == 0).float().mean()) == pytest.approx(0.1, abs=3e-3)
    assert scale == pytest.approx(1 / 0.9, rel=2**-9)


def test_signed_masks_are_the_same_draw():
    torch.manual_seed(0)
    plain = masks(torch.Size((50, 7)), 0.25)
    torch.manual_seed(0)
    signed = masks(torch.Size((50, 7)), 0.25, signed=True)
    torch.testing.assert_close(signed.clamp_min(0), plain, rtol=0, atol=0)
    assert float(signed.abs().min()) == float(kept_scale(0.25))


def test_looked_up_gelu_and_its_slope_are_right_at_every_bfloat16():
    x = torch.arange(2**16, dtype=torch.int32).to(torch.uint16).view(torch.bfloat16)
    x = x[x.isfinite() & (x.abs() < 1e30)]
    exact = x.double().requires_grad_()
    F.gelu(exact, approximate="tanh").sum().backward()
    wanted = F.gelu(x.double(), approximate="tanh").bfloat16()
    torch.testing.assert_close(gelu_tanh(x)[x.abs() < 8], wanted[x.abs() < 8], rtol=2**-8, atol=1e-12)
    assert torch.equal(gelu_tanh(x)[x >= 10], x[x >= 10])
    looked_up = x.clone().requires_grad_()
    gelu_tanh(looked_up).sum().backward()
    assert looked_up.grad is not None
    assert exact.grad is not None
    near = x.abs() < 20
    torch.testing.assert_close(looked_up.grad.double()[near], exact.grad[near], rtol=2**-8, atol=1e-12)


@needs_packing
@pytest.mark.parametrize("trains", [False, True])
def test_a_packed_matrix_gives_the_same_product_and_gradients(trains):
    torch.manual_seed(0)
    linear = nn.Linear(48, 20).requires_grad_(False)
    linear.bias.requires_grad_(trains)
    packed = PackedLinear(linear)
    x = torch.randn(2, 5, 48, requires_grad=True)
    found = packed(x).float()
    wanted = F.linear(x, linear.weight, linear.bias)
    torch.testing.assert_close(found, wanted, rtol=0.03, atol=0.03)
    wanted.sum().backward()
    wanted_gradient, x.grad = x.grad, None
    found.sum().backward()
    torch.testing.assert_close(x.grad, wanted_gradient, rtol=0.03, atol=0.03)
    if trains and packed.bias is not None:
        assert packed.bias.dtype == torch.float32
        torch.testing.assert_close(packed.bias.grad, linear.bias.grad)


@needs_packing
def test_a_packed_network_gives_the_same_hidden_states():
    network, packed = random_transformer(GPT2, std=0.05), random_transformer(GPT2, std=0.05)
    assert pack_frozen(packed.blocks)
    x = torch.randn(3, 9, 32)
    with torch.autocast("cpu", torch.bfloat16):
        found, wanted = packed(x, 2).float(), network(x, 2).float()
    assert float((found - wanted).norm() / wanted.norm()) <= 0.02


@needs_packing
def test_what_trains_is_not_packed():
    network = random_transformer(GPT2)
    network.blocks[1].up.weight.requires_grad_(True)
    pack_frozen(network.blocks)
    assert isinstance(network.blocks[1].up, nn.Linear)
    assert isinstance(network.blocks[1].down, PackedLinear)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("training", [False, True])
def test_each_rows_own_places_are_what_the_whole_output_has_there(config, training):
    """The last block computes those alone, values and gradients as if it had computed all."""
    network = random_transformer(config, std=0.1)
    names = [name for name in vars(network.spec) if name.endswith("_dropout")]
    quiet = replace(network.spec, **dict.fromkeys(names, 0.0))
    still = Transformer(quiet)
    still.load_state_dict(network.state_dict())
    network = still.requires_grad_(False).train(training)
    lengths = torch.tensor([9, 6, 2])
    mask, places = torch.arange(9) < lengths[:, None], lengths[:, None] - torch.tensor([2, 1])
    found, wanted = [], []
    for out, kept in ((found, places), (wanted, 9)):
        x = torch.randn(3, 9, 32, generator=torch.Generator().manual_seed(0), requires_grad=True)
        hidden = network(x, kept, mask)
        y = hidden if kept is places else hidden.take_along_dim(places[..., None], 1)
        out += [y, torch.autograd.grad((y * torch.linspace(-1, 1, 32)).sum(), x)[0]]
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in CONFIGS if name != "vit"])
def test_in_training_values_are_dropped_where_transformers_drops_them(name):
    """Each sublayer's, the embeddings' and T5's own; those of attention weights are functions in some families."""
    theirs, ours = reference(CONFIGS[name]).train(), random_transformer(CONFIGS[name]).train()
    x, found = torch.randn(2, 8, 32), {theirs: [], ours: []}
    for network, shapes in found.items():
        for part in network.modules():
            probability = part.p if isinstance(part, nn.Dropout) else getattr(part, "probability", 0.0)
            if probability:
                part.register_forward_hook(
                    lambda _, given, __, to=shapes, p=probability: to.append((given[0].shape, p))
                )
    theirs(inputs_embeds=x)
    ours(x, 8)
    assert [at for at in found[theirs] if len(at[0]) == 3] == found[ours]
