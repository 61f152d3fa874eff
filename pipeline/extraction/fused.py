"""Triton kernels for what stands between the matrix products of a frozen network on a GPU.

The residual sum with the norm next to it is one pass over memory, an activation that cuBLAS cannot apply another. Both
compute in float32 and round once. Importing this module needs triton, which torch brings along on Linux; whether it is
used is decided by `pipeline.extraction.products.kernels_for` alone.
"""

from __future__ import annotations

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor, nn

from pipeline.backbones.spec import Activation
from pipeline.backbones.transformer import RmsNorm

ROOT_HALF = tl.constexpr(0.7071067811865476)
MINUS_TWICE_ROOT = tl.constexpr(-1.5957691216057308)  # -2 √(2/π)
CUBIC = tl.constexpr(0.044715)
COLUMNS = 1024
"""Numbers that one program of the activation takes."""
OPTIONS = {"enable_fp_fusion": False}
"""Said here because Triton's default changes between versions, and with it low bits; memory bounds the speed anyway."""


@triton.jit
@no_type_check  # the tests' check of types would wrap it in Python that no kernel can hold
def add_norm_kernel(  # noqa: PLR0913 - a kernel has no other way to be told
    stream: tl.tensor,
    added: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    out: tl.tensor,
    width: tl.tensor,
    eps: tl.tensor,
    has_added: tl.constexpr,
    has_bias: tl.constexpr,
    rms: tl.constexpr,
    postnorm: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """One row: the sum, its norm, both written. `block` is the power of two that holds `width`."""
    column = tl.arange(0, block)
    inside = column < width
    place = tl.program_id(0).to(tl.int64) * width + column
    x = tl.load(stream + place, mask=inside, other=0.0)
    if has_added:
        x += tl.load(added + place, mask=inside, other=0.0).to(tl.float32)
        if not postnorm:
            tl.store(stream + place, x, mask=inside)
    centred = x
    if not rms:
        centred = tl.where(inside, x - tl.sum(x, axis=0) / width, 0.0)
    y = centred * tl.rsqrt(tl.sum(centred * centred, axis=0) / width + eps)
    y *= tl.load(weight + column, mask=inside, other=0.0)
    if has_bias:
        y += tl.load(bias + column, mask=inside, other=0.0)
    if postnorm:
        tl.store(stream + place, y, mask=inside)
    tl.store(out + place, y.to(out.dtype.element_ty), mask=inside)


@triton.jit
@no_type_check
def activate_kernel(
    x: tl.tensor, out: tl.tensor, width: tl.tensor, activation: tl.constexpr, gated: tl.constexpr, block: tl.constexpr
) -> None:
    """`block` columns of one row; a gated row holds the activated half and behind it the half to multiply with."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < width
    start = x + row * width * (2 if gated else 1) + column
    value = tl.load(start, mask=inside, other=0.0).to(tl.float32)
    if activation == "gelu":
        y = 0.5 * value * (1.0 + tl.erf(value * ROOT_HALF))
    elif activation == "gelu_tanh":  # (1 + tanh z) / 2 = 1 / (1 + exp -2z)
        y = value / (1.0 + tl.exp((value + value * value * value * CUBIC) * MINUS_TWICE_ROOT))
    elif activation == "silu":
        y = value / (1.0 + tl.exp(-value))
    else:
        y = tl.where(value < 0.0, 0.0, value)  # a NaN stays one
    if gated:
        y *= tl.load(start + width, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * width + column, y.to(out.dtype.element_ty), mask=inside)


class FusedNorm:
    """A LayerNorm or RMSNorm, and the sum of the residual stream with what a sublayer adds to it, in one kernel.

    See `pipeline.extraction.sums` for what it takes and gives.
    """

    def __init__(self, norm: nn.Module, dtype: torch.dtype, postnorm: bool) -> None:
        assert isinstance(norm, nn.LayerNorm | RmsNorm)
        self.weight, self.eps, self.dtype = norm.weight.detach(), norm.eps or 0.0, dtype
        bias = norm.bias if isinstance(norm, nn.LayerNorm) else None
        self.bias = None if bias is None else bias.detach()
        self.rms, self.postnorm = isinstance(norm, RmsNorm), postnorm

    def __call__(
        self, stream: Float32[Tensor, "*batch width"], added: Float[Tensor, "*batch width"] | None = None
    ) -> Float[Tensor, "*batch width"]:
        """See `SumAndNorm`."""
        assert stream.is_contiguous(), "the stream is written in place"
        width = stream.shape[-1]
        out = torch.empty(stream.shape, dtype=self.dtype, device=stream.device)
        block = triton.next_power_of_2(width)
        add_norm_kernel[(stream.numel() // width,)](
            stream,
            stream if added is None else added.contiguous(),
            self.weight,
            self.weight if self.bias is None else self.bias,
            out,
            width,
            self.eps,
            has_added=added is not None,
            has_bias=self.bias is not None,
            rms=self.rms,
            postnorm=self.postnorm,
            block=block,
            **OPTIONS,
            **{"num_warps": min(max(block // 256, 1), 16)},
        )
        return out


def activate_(x: Float[Tensor, "*batch width"], activation: Activation) -> Float[Tensor, "*batch width"]:
    """Apply the activation in place; `x` is contiguous."""
    return _activated(x, x, activation, gated=False)


def activate_gated(x: Float[Tensor, "*batch both"], activation: Activation) -> Float[Tensor, "*batch half"]:
    """activation(first half) × second half of each row; `x` is contiguous."""
    out = torch.empty((*x.shape[:-1], x.shape[-1] // 2), dtype=x.dtype, device=x.device)
    return _activated(x, out, activation, gated=True)


def _activated(x: Tensor, out: Tensor, activation: Activation, gated: bool) -> Tensor:
    assert x.is_contiguous(), "rows are found by their place in memory"
    width = out.shape[-1]
    grid = (out.numel() // width, triton.cdiv(width, COLUMNS))
    activate_kernel[grid](x, out, width, activation=activation, gated=gated, block=COLUMNS, **OPTIONS)
    return out


def try_out(device: torch.device) -> None:
    """Run each kernel once on the device, whatever goes wrong there."""
    with torch.cuda.device(device):
        stream = torch.ones(1, 16, device=device)
        norm = FusedNorm(nn.LayerNorm(16, device=device), torch.bfloat16, postnorm=False)
        activate_(norm(stream, stream.bfloat16()), "gelu")
        torch.cuda.synchronize()
