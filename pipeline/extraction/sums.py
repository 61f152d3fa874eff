"""The residual sum with the norm next to it: two of the three things that stand between a block's matrix products.

On a CPU they are bound by memory, so they run over pieces that its second-level cache holds: sum, norm and rounding
read what the one before them has just written. That changes no bit, since each row is its own, and took what a
compiler's one fused loop took when both were measured. A GPU has a kernel that is all of it (`fused.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Float32
from torch import Tensor, nn

from pipeline.extraction.products import FUSED_CUDA, kernels_for

PIECE_BYTES = 1 << 20
"""Of float32 numbers at a time; between 0.5 and 3 MiB the time is the same within its spread."""


@runtime_checkable
class SumAndNorm(Protocol):
    """The norm of `stream + added`, in the dtype of products; the stream is overwritten."""

    def __call__(
        self, stream: Float32[Tensor, "*batch width"], added: Float[Tensor, "*batch width"] | None = None
    ) -> Float[Tensor, "*batch width"]:
        """Write the sum, or with a postnorm the norm, into `stream`; give the norm.

        Args:
            stream: contiguous.
            added: None where there is nothing to add, and the stream of a prenorm stays as it is.
        """
        ...


def sum_and_norm(norm: nn.Module, dtype: torch.dtype, postnorm: bool) -> SumAndNorm:
    """The one for the norm's device and this dtype.

    Args:
        norm: `nn.LayerNorm` or `RmsNorm`, its parameters in float32.
        dtype: of the result, which the next product reads.
        postnorm: whether the stream goes on as the norm (BERT) or as the sum (GPT-2).
    """
    if kernels_for(next(norm.parameters()).device, dtype) == FUSED_CUDA:
        from pipeline.extraction.fused import FusedNorm

        return FusedNorm(norm, dtype, postnorm)
    return PiecewiseNorm(norm, dtype, postnorm)


class PiecewiseNorm:
    """PyTorch's own sum and norm, piece by piece. See `SumAndNorm`."""

    def __init__(self, norm: nn.Module, dtype: torch.dtype, postnorm: bool) -> None:
        self.norm, self.dtype, self.postnorm = norm, dtype, postnorm

    def __call__(
        self, stream: Float32[Tensor, "*batch width"], added: Float[Tensor, "*batch width"] | None = None
    ) -> Float[Tensor, "*batch width"]:
        """See `SumAndNorm`."""
        out = torch.empty(stream.shape, dtype=self.dtype, device=stream.device)
        rows, ready = stream.view(-1, stream.shape[-1]), out.view(-1, stream.shape[-1])
        more = None if added is None else added.reshape(rows.shape)
        for piece in pieces(len(rows), 4 * rows.shape[1], stream.device):
            part = rows[piece]
            if more is not None:
                part += more[piece]
            normed = self.norm(part)
            if self.postnorm:
                part.copy_(normed)
            ready[piece] = normed
        return out


def pieces(rows: int, row_bytes: int, device: torch.device) -> Iterator[slice]:
    """So many rows at a time that a CPU's second-level cache holds them; on other devices all at once."""
    step = max(1, PIECE_BYTES // row_bytes) if device.type == "cpu" else max(1, rows)
    return (slice(start, start + step) for start in range(0, rows, step))
