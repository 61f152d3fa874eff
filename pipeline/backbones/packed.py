"""Frozen matrices in half precision, laid out once for the forward and once for the gradient of the input.

A frozen matrix is used twice in a step, as it is and transposed, and never changes, so oneDNN's blocked layout can be
made before training instead of in every product. Where the operation or bfloat16 is missing a matrix stays an
`nn.Linear`, which gives the same numbers up to low bits.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

LAYOUT_ROWS = 512
"""Rows that the layout is chosen for; any number runs, and nearby ones run as fast."""


class _Product(torch.autograd.Function):
    """`x @ weight.T + bias` in bfloat16, with the gradient of `x` alone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, forth: Tensor, back: Tensor, bias: Tensor | None) -> Tensor:
        ctx.back, ctx.dtype = back, x.dtype
        return _product(x, forth, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:  # pyright: ignore
        return _product(gradients[0], ctx.back, None).to(ctx.dtype), None, None, None


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    rows = x.to(torch.bfloat16).flatten(0, -2)
    return torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "").unflatten(0, x.shape[:-1])


class PackedLinear(nn.Module):
    """A frozen `nn.Linear` in bfloat16 for a CPU. Its bias may train, and is then added in float32."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach().to(torch.bfloat16)
        pack = torch.ops.mkldnn._reorder_linear_weight
        # Opaque to everything but the product: neither parameters nor buffers.
        self._forth = pack(weight.contiguous(), LAYOUT_ROWS)
        self._back = pack(weight.T.contiguous(), LAYOUT_ROWS)
        self.bias = None
        if linear.bias is not None:
            trains = linear.bias.requires_grad
            self.bias = nn.Parameter(linear.bias.detach(), requires_grad=trains)
            if not trains:
                self.bias.data = self.bias.data.to(torch.bfloat16)

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch out"]:
        """The product in bfloat16, whatever the dtype of `x`."""
        if self.bias is None or not self.bias.requires_grad:
            return _Product.apply(x, self._forth, self._back, self.bias)  # pyright: ignore[reportReturnType]
        return _Product.apply(x, self._forth, self._back, None) + self.bias  # pyright: ignore


def can_pack() -> bool:
    """Whether this CPU and this build of torch have the product that `PackedLinear` needs."""
    try:
        weight = torch.ones(16, 16, dtype=torch.bfloat16)
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, LAYOUT_ROWS)
        product = torch.ops.mkldnn._linear_pointwise(weight, packed, None, "none", [], "")
        return bool((product == 16).all())
    except (AttributeError, RuntimeError, NotImplementedError):
        return False


def pack_frozen(blocks: nn.ModuleList) -> bool:
    """Put `PackedLinear` in place of every frozen matrix; false, with nothing done, where this CPU lacks the product.

    The last block's queries, keys and values stay as they are, because a last block that computes only some tokens
    needs the parts of that matrix one by one.
    """
    if not can_pack():
        return False
    for index, block in enumerate(blocks):
        for parent, name in ((block.attention, "qkv"), (block.attention, "out"), (block, "up"), (block, "down")):
            linear = getattr(parent, name)
            last = name == "qkv" and index == len(blocks) - 1
            if isinstance(linear, nn.Linear) and not linear.weight.requires_grad and not last:
                setattr(parent, name, PackedLinear(linear))
    return True
