"""The matrix products of a frozen network, prepared once: weights packed for the machine, activation fused.

On a CPU with bfloat16 instructions oneDNN multiplies weights that were laid out for it beforehand and applies GELU
while the result is still in registers. On a GPU cuBLAS does so for tanh GELU and ReLU; what it cannot apply, and what
stands between products, are Triton kernels (`fused.py`). Elsewhere a product is PyTorch's own. Which it is follows from
the kind of device and the dtype alone, so that equal bytes within a kind of device still hold.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from pipeline.backbones.spec import Activation
from pipeline.backbones.transformer import activate
from pipeline.device import computed_in

Product = Callable[[Float[Tensor, "batch token input"]], Float[Tensor, "batch token output"]]

PACKED = "oneDNN bf16 products, weights packed once, GELU fused"
FUSED_CUDA = "cuBLAS products; norms, residual sums and activations fused in Triton"
PLAIN = "PyTorch's own products"
FLOAT32 = "PyTorch's own products, in float32"
HALF = (torch.bfloat16, torch.float16)
SLOW = "transformers' own code: not one of the fast families, so nothing is fused and every layer runs"
FUSED_PACKED = {None: ("none", ""), "gelu": ("gelu", "none"), "gelu_tanh": ("gelu", "tanh"), "silu": ("swish", "")}


def kernels_for(device: torch.device, dtype: torch.dtype) -> str:
    """Which products this device and dtype get: `PACKED`, `FUSED_CUDA`, `PLAIN`, or `FLOAT32` in place of bfloat16.

    The one place that decides it. float32 stays plain on a GPU: what the fused kernels gave is compared with it, so the
    two should share none.
    """
    if device.type == "cuda":
        return FUSED_CUDA if dtype in HALF and triton_fault(device) is None else PLAIN
    if dtype != torch.bfloat16 or device.type != "cpu":
        return PLAIN
    return PACKED if computed_in(device, dtype) == dtype else FLOAT32


@functools.cache
def triton_fault(device: torch.device) -> str | None:
    """Why the Triton kernels cannot run on a CUDA device; None when they can.

    Found out by running them once: Triton also needs a C compiler and a driver that it knows.
    """
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    if not torch.cuda.is_available():
        return "torch sees no CUDA device"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return "this GPU has no bfloat16 units"
    try:
        from pipeline.extraction.fused import try_out

        try_out(device)
    except Exception as error:  # Triton has no error of its own for all that can be missing
        return f"Triton fails with {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    return None


def reason_for(device: torch.device, dtype: torch.dtype) -> str:
    """The choice in a sentence for the user, with what it costs where it is a fallback."""
    kernels = kernels_for(device, dtype)
    if kernels == FLOAT32:
        return f"{FLOAT32}: this CPU has no bfloat16 instructions, with which it would take half the time or less"
    if kernels != PLAIN or dtype not in HALF or device.type != "cuda":
        return kernels
    fault = triton_fault(device)
    return f"{PLAIN}: {fault}; a block's norms, sums and activation are 7 passes over memory in place of 2 or 3"


def product(weight: Tensor, bias: Tensor | None, dtype: torch.dtype, activation: Activation | None = None) -> Product:
    """`activation(x @ weight.T + bias)` as a function of x, computed in `dtype` whatever x is in.

    Args:
        weight: `(output, input)`, on the device of the inputs.
        bias: `(output,)`, or None.
        dtype: of both operands and of the result.
        activation: applied to the result; None for none.
    """
    weight, bias = weight.to(dtype), None if bias is None else bias.to(dtype)
    kernels = kernels_for(weight.device, dtype)
    if kernels == PACKED and activation in FUSED_PACKED:
        return _packed(weight, bias, activation)
    if kernels == FUSED_CUDA and activation is not None:
        return _fused_cuda(weight, bias, activation)
    return _plain(weight, bias, activation)


def linear(module: nn.Linear, dtype: torch.dtype, activation: Activation | None = None) -> Product:
    """`product` of a linear layer's parameters."""
    return product(module.weight, module.bias, dtype, activation)


def gated(module: nn.Linear, dtype: torch.dtype, activation: Activation) -> Product:
    """activation(first half) × second half of a linear layer's output.

    With the Triton kernels both halves are one product, and the kernel behind it reads each of its rows once.
    """
    if kernels_for(module.weight.device, dtype) == FUSED_CUDA:
        from pipeline.extraction.fused import activate_gated

        both = linear(module, dtype)
        return lambda x: activate_gated(both(x), activation)
    biases = (None, None) if module.bias is None else module.bias.chunk(2)
    gate, rest = (
        product(weight, bias, dtype, applied)
        for weight, bias, applied in zip(module.weight.chunk(2), biases, (activation, None), strict=True)
    )
    return lambda x: gate(x) * rest(x)


def _packed(weight: Tensor, bias: Tensor | None, activation: Activation | None) -> Product:
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous())
    attribute, algorithm = FUSED_PACKED[activation]

    def multiply(x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x.to(weight.dtype), packed, bias, attribute, [], algorithm)

    return multiply


def _fused_cuda(weight: Tensor, bias: Tensor | None, activation: Activation) -> Product:
    from pipeline.extraction.fused import activate_

    if activation == "relu" or (activation == "gelu_tanh" and weight.is_cuda):  # what a CPU calls GELU here is erf's
        added, gelu = weight.new_zeros(len(weight)) if bias is None else bias, activation == "gelu_tanh"

        def in_cublas(x: Tensor) -> Tensor:
            rows = x.to(weight.dtype).flatten(0, -2)
            return torch.ops.aten._addmm_activation(added, rows, weight.T, use_gelu=gelu).unflatten(0, x.shape[:-1])

        return in_cublas

    def in_triton(x: Tensor) -> Tensor:
        return activate_(F.linear(x.to(weight.dtype), weight, bias), activation)

    return in_triton


def _plain(weight: Tensor, bias: Tensor | None, activation: Activation | None) -> Product:
    def multiply(x: Tensor) -> Tensor:
        y = F.linear(x.to(weight.dtype), weight, bias)
        return y if activation is None else activate(y, activation)

    return multiply
