"""Attention of a training step on a CPU, forward and backward written out.

torch's fused kernel takes four times as long backward at the lengths of these tasks and knows no dropout, and autograd
over the single operations copies queries, keys and values one by one. Here they are laid out by head in one copy, and
the softmax is computed in float32, which over short rows is also three times as fast as in bfloat16.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from pipeline.backbones.dropout import kept_scale, masks


def attend(
    queries: Float[Tensor, "batch last width"] | None,
    rest: Float[Tensor, "batch token projection"],
    heads: int,
    allowed: Bool[Tensor, "#batch 1 #last token"] | None,
    probability: float,
) -> Float[Tensor, "batch last width"]:
    """softmax(q kᵀ / √d) v with dropout on the softmax, from projections as they leave the matrices.

    `rest` holds keys and values beside each other, and the queries before them where `queries` is None.
    """
    return _Attend.apply(queries, rest, heads, allowed, probability)  # pyright: ignore[reportReturnType]


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, queries: Tensor | None, rest: Tensor, heads: int, allowed: Tensor | None, probability: float
    ) -> Tensor:
        parts = _by_head(rest, heads, 3 if queries is None else 2)
        q = parts[0] if queries is None else _by_head(queries, heads, 1)[0]
        weights = torch.bmm(q, parts[-2].transpose(1, 2)).float().mul_(q.shape[-1] ** -0.5)
        if allowed is not None:
            weights.unflatten(0, (-1, heads)).masked_fill_(~allowed, -torch.inf)
        weights = weights.softmax(-1)
        # What is dropped is kept with a negative sign: one tensor in half precision is all that the backward needs.
        ctx.scale, signed = float(kept_scale(probability)), weights.to(rest.dtype)
        if probability:
            signed *= masks(signed.shape, probability, signed=True)
        ctx.save_for_backward(parts, q, signed)
        ctx.heads, ctx.whole = heads, queries is None
        return _joined(torch.bmm(signed.clamp_min(0), parts[-1])[None], heads)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        parts, q, signed = ctx.saved_tensors
        g = _by_head(gradients[0].to(parts.dtype), ctx.heads, 1)[0]
        out, g_queries, dropped = torch.empty_like(parts), torch.empty_like(q), signed.clamp_min(0)
        torch.bmm(dropped.transpose(1, 2), g, out=out[-1])
        g_scores = torch.bmm(g, parts[-1].transpose(1, 2)).float().mul_(dropped)
        row = g_scores.sum(-1, keepdim=True)
        g_scores = g_scores.addcmul_(signed.float().abs_(), row, value=-1 / ctx.scale)
        g_scores = g_scores.mul_(q.shape[-1] ** -0.5).to(parts.dtype)
        torch.bmm(g_scores.transpose(1, 2), q, out=out[-2])
        torch.bmm(g_scores, parts[-2], out=out[0] if ctx.whole else g_queries)
        return None if ctx.whole else _joined(g_queries[None], ctx.heads), _joined(out, ctx.heads), None, None, None


def _by_head(x: Tensor, heads: int, parts: int) -> Tensor:
    """`(batch, token, part × head × d)` to `(part, batch × head, token, d)`, in one copy."""
    return x.unflatten(-1, (parts, heads, -1)).permute(2, 0, 3, 1, 4).contiguous().flatten(1, 2)


def _joined(x: Tensor, heads: int) -> Tensor:
    """The inverse of `_by_head`."""
    return x.unflatten(1, (-1, heads)).permute(1, 3, 0, 2, 4).flatten(2)
