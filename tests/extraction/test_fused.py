"""The GPU's Triton kernels against the definition in float64, and networks through them against float32."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pipeline.backbones.transformer import RmsNorm, activate
from pipeline.extraction import frozen_attention, products, sums
from pipeline.extraction.forward import Reader
from pipeline.extraction.fused import FusedNorm, activate_, activate_gated
from pipeline.extraction.network import FastNetwork
from pipeline.extraction.products import FUSED_CUDA, PLAIN, linear
from tests.architectures import CONFIGS, reference_states, write_reference
from tests.extraction.places import PLACES
from tests.imports import ROOT
from tests.tiny import backbone, random_transformer

# Half a unit in the last place, twice that where Triton's interpreter cuts bfloat16 off instead of rounding it.
ROUNDING = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
DTYPES = pytest.mark.parametrize("dtype", ROUNDING, ids=str)
NORMS = {
    "layer": lambda width: nn.LayerNorm(width, eps=1e-5),
    "layer-no-bias": lambda width: nn.LayerNorm(width, bias=False),
    "rms": lambda width: RmsNorm(width, eps=1e-6),
}


def normalised(norm: Any, x: Tensor) -> Tensor:
    """By definition, in float64."""
    centred = x - (0 if isinstance(norm, RmsNorm) else x.mean(-1, keepdim=True))
    bias = getattr(norm, "bias", None)
    mean_square: Tensor = centred.square().mean(-1, keepdim=True)
    y = centred / (mean_square + (norm.eps or 0.0)).sqrt() * norm.weight.double()
    return y if bias is None else y + bias.double()


@PLACES
@DTYPES
@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize("postnorm", [False, True])
@pytest.mark.parametrize(("rows", "width", "size"), [(1, 7, 1.0), (3, 33, 1e4), (2, 64, 1e-3)])
@torch.no_grad()
def test_sum_and_norm_are_the_definition(place, dtype, kind, postnorm, rows, width, size):
    norm = NORMS[kind](width).to(place)
    for parameter in norm.parameters():
        parameter.normal_()
    stream = torch.randn(2, rows, width, device=place) * size
    added = (torch.randn(2, rows, width, device=place) * size).to(dtype)
    total = stream.double() + added.double()
    wanted = normalised(norm, total)
    found = FusedNorm(norm, dtype, postnorm)(stream, added)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), wanted, rtol=ROUNDING[dtype], atol=ROUNDING[dtype])
    goes_on = wanted if postnorm else total
    torch.testing.assert_close(stream.double(), goes_on, rtol=2e-6, atol=2e-6 * max(1.0, size))


@PLACES
@torch.no_grad()
def test_a_norm_with_nothing_to_add_leaves_the_stream(place):
    norm, stream = nn.LayerNorm(24).to(place), torch.randn(5, 24, device=place)
    before = stream.clone()
    found = FusedNorm(norm, torch.float32, postnorm=False)(stream)
    torch.testing.assert_close(found.double(), normalised(norm, before.double()), rtol=1e-6, atol=1e-6)
    assert torch.equal(stream, before)


@PLACES
@DTYPES
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "silu", "relu"])
@pytest.mark.parametrize("width", [6, 1030])
@pytest.mark.filterwarnings("ignore:overflow encountered in exp")
def test_activations_are_the_definition_also_far_out(place, dtype, activation, width):
    x = (torch.randn(2, width, device=place) * 4).to(dtype)
    x[:, :4] = torch.tensor([90.0, -200.0, 0.0, 500.0])
    half, tolerance = width // 2, ROUNDING[dtype]
    wanted = activate(x.double(), activation)
    gated = wanted[:, :half] * x[:, half:].double()
    torch.testing.assert_close(activate_gated(x, activation).double(), gated, rtol=tolerance, atol=tolerance)
    assert activate_(x, activation) is x
    torch.testing.assert_close(x.double(), wanted, rtol=tolerance, atol=tolerance)


@PLACES
@pytest.mark.filterwarnings("ignore:invalid value encountered")
def test_what_is_not_finite_stays_so(place):
    """A row that overflows is found by its states and computed again in float32: no kernel may hide it."""
    x = torch.full((1, 8), torch.nan, device=place)
    for activation in ("gelu", "gelu_tanh", "silu", "relu"):
        assert activate_(x.clone(), activation).isnan().all()
    assert FusedNorm(nn.LayerNorm(8).to(place), torch.bfloat16, False)(torch.zeros_like(x), x).isnan().all()


@PLACES
@pytest.mark.parametrize("activation", [None, "gelu", "gelu_tanh", "relu", "silu"])
def test_products_with_their_activation_are_the_products(place, activation, fused):
    layer = nn.Linear(48, 64).requires_grad_(False).to(place)
    x = torch.randn(5, 7, 48, device=place)
    wanted = linear(layer, torch.float32, None)(x).double()
    wanted = wanted if activation is None else activate(wanted, activation)
    found = linear(layer, torch.bfloat16, activation)(x)
    assert found.dtype == torch.bfloat16
    assert (found.double() - wanted).norm() / wanted.norm() < 8e-3


@pytest.fixture
def fused(monkeypatch):
    """The GPU's choice of kernels, whatever the device and dtype."""
    for module in (products, frozen_attention, sums):
        monkeypatch.setattr(module, "kernels_for", lambda device, dtype: FUSED_CUDA)


@PLACES
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@torch.no_grad()
def test_every_family_is_itself_in_every_layer(config, place, fused, monkeypatch):
    """Whole and padded batches in float32, whole ones in bfloat16."""
    exact = random_transformer(config, std=0.1).to(place)
    adapter, inputs = nn.Linear(4, 32).to(place), torch.randn(2, 6, 4, device=place)
    names = ("0", "1", "2", "final")
    for lengths in (torch.tensor([6, 6]), torch.tensor([6, 2])):
        with monkeypatch.context() as patch:
            for module in (products, frozen_attention, sums):
                patch.setattr(module, "kernels_for", lambda device, dtype: PLAIN)
            wanted = Reader(adapter, exact, names, ("task",)).read(inputs, lengths, 2)
        whole = bool(lengths.min() == 6)
        for dtype, tolerance in ((torch.float32, 1e-5), *([(torch.bfloat16, 1.5e-2)] if whole else [])):
            reader = Reader(adapter, exact, names, ("task",), dtype)
            assert isinstance(reader.network, FastNetwork)
            assert isinstance(reader.network.blocks[0].norm1, FusedNorm)
            found = reader.read(inputs, lengths, 2)
            for layer in range(len(names)):
                error = (found[:, :, layer] - wanted[:, :, layer]).norm() / wanted[:, :, layer].norm()
                assert error <= tolerance, (lengths, dtype, names[layer])


@pytest.mark.slow
@PLACES
@pytest.mark.parametrize("name", [name for name in CONFIGS if name != "longformer"])
@torch.no_grad()
def test_every_family_is_what_transformers_computes(name, place, fused, tmp_path):
    x = torch.randn(2, 9, 32)
    wanted = reference_states(write_reference(tmp_path, CONFIGS[name]), x)
    ours = backbone(tmp_path).load_frozen()
    names = (*(str(depth) for depth in range(len(wanted) - 1)), "final")
    reader = Reader(nn.Identity(), ours.to(place), names, ("all",))
    states = reader.read(x.to(place), torch.tensor([9, 9]), 1).cpu()
    for layer, hidden in enumerate(wanted):
        assert (states[:, :, layer] - hidden).norm() / hidden.norm() <= 1e-5


def test_a_gpu_without_triton_is_told_what_that_costs(monkeypatch):
    device = torch.device("cuda", 77)
    monkeypatch.setattr(products.importlib.util, "find_spec", lambda name: None)
    assert products.kernels_for(device, torch.bfloat16) == PLAIN
    assert "triton is not installed; a block's norms" in products.reason_for(device, torch.bfloat16)
    assert products.reason_for(device, torch.float32) == PLAIN


def test_a_gpu_on_which_triton_fails_is_told_why(monkeypatch):
    device = torch.device("cuda", 78)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))

    def fails(_):
        raise RuntimeError("Failed to find C compiler.\nPlease specify via CC.")

    monkeypatch.setattr("pipeline.extraction.fused.try_out", fails)
    assert products.kernels_for(device, torch.bfloat16) == PLAIN
    assert "RuntimeError: Failed to find C compiler.; a block's" in products.reason_for(device, torch.bfloat16)


def test_a_gpu_on_which_they_run_has_them_in_half_precision_alone(monkeypatch):
    monkeypatch.setattr(products, "triton_fault", lambda device: None)
    device = torch.device("cuda", 79)
    assert products.kernels_for(device, torch.bfloat16) == products.reason_for(device, torch.bfloat16) == FUSED_CUDA
    assert products.kernels_for(device, torch.float32) == PLAIN


@pytest.mark.slow
def test_the_cpu_never_needs_triton():
    code = "import sys; sys.modules['triton'] = None; import pipeline.extraction.engine"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


@pytest.mark.slow
def test_every_kernel_compiles_for_ampere_and_hopper():
    command = [sys.executable, "-m", "tests.extraction.compiled"]
    subprocess.run(command, cwd=ROOT, check=True)
