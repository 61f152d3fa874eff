"""The matrix products of a frozen network, prepared once: weights packed for the machine, activation fused.

On a CPU with bfloat16 instructions oneDNN multiplies weights that were laid out for it beforehand and applies GELU
while the result is still in registers. Elsewhere a product is PyTorch's own. Which one it is follows from the kind of
device and the dtype alone, so that equal bytes within a kind of device still hold.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from pipeline.backbones.spec import Activation
from pipeline.backbones.transformer import activate

Product = Callable[[Float[Tensor, "batch token input"]], Float[Tensor, "batch token output"]]

PACKED = "oneDNN bf16 products, weights packed once, GELU fused"
PLAIN = "PyTorch's own products"
FUSED = {None: ("none", ""), "gelu": ("gelu", "none"), "gelu_tanh": ("gelu", "tanh"), "silu": ("swish", "")}


def kernels_for(device: torch.device, dtype: torch.dtype) -> str:
    """Which products this device and dtype get: `PACKED` or `PLAIN`."""
    packed = device.type == "cpu" and dtype == torch.bfloat16 and torch.backends.mkldnn.is_available()
    return PACKED if packed and torch.ops.mkldnn._is_mkldnn_bf16_supported() else PLAIN


SLOW = "transformers' own code: not one of the fast families, so nothing is fused and every layer runs"


def reason_for(device: torch.device, dtype: torch.dtype) -> str:
    """The choice in a sentence for the user, with what it costs where it is a fallback."""
    if kernels_for(device, dtype) == PACKED:
        return PACKED
    if device.type == "cpu" and dtype == torch.bfloat16:
        return f"{PLAIN}: this CPU has no bfloat16 instructions, float32 is faster here (cache.compute_dtype: float32)"
    return PLAIN


def product(weight: Tensor, bias: Tensor | None, dtype: torch.dtype, activation: Activation | None = None) -> Product:
    """`activation(x @ weight.T + bias)` as a function of x, computed in `dtype` whatever x is in.

    Args:
        weight: `(output, input)`, on the device of the inputs.
        bias: `(output,)`, or None.
        dtype: of both operands and of the result.
        activation: applied to the result; None for none.
    """
    weight, bias = weight.to(dtype), None if bias is None else bias.to(dtype)
    if kernels_for(weight.device, dtype) == PACKED and activation in FUSED:
        return _packed(weight, bias, activation)
    return _plain(weight, bias, activation)


def linear(module: nn.Linear, dtype: torch.dtype, activation: Activation | None = None) -> Product:
    """`product` of a linear layer's parameters."""
    return product(module.weight, module.bias, dtype, activation)


def _packed(weight: Tensor, bias: Tensor | None, activation: Activation | None) -> Product:
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous())
    attribute, algorithm = FUSED[activation]

    def multiply(x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x.to(weight.dtype), packed, bias, attribute, [], algorithm)

    return multiply


def _plain(weight: Tensor, bias: Tensor | None, activation: Activation | None) -> Product:
    def multiply(x: Tensor) -> Tensor:
        y = F.linear(x.to(weight.dtype), weight, bias)
        return y if activation is None else activate(y, activation)

    return multiply
