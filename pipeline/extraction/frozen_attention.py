"""Self-attention for extraction only: prepared products, and queries at the wanted positions alone.

The definition is `pipeline.backbones.transformer.Attention`; tests hold the two equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from pipeline.backbones.attention_mask import scores_mask, visible
from pipeline.backbones.places import Geometry, rotate
from pipeline.backbones.transformer import Attention
from pipeline.extraction.packing import Packing
from pipeline.extraction.products import PACKED, Product, kernels_for, linear, product
from pipeline.extraction.sums import pieces

SHORT = 1024
"""Up to so many tokens the scores of all pairs are held at once; beyond, their memory costs more than it saves."""


@dataclass(frozen=True)
class Batch:
    """What all blocks share while a batch goes through them.

    Attributes:
        tokens: of each row, padding included.
        mask: which of them are real; None when all are.
        packing: how the real ones are laid end to end; None when all are real.
        geometry: what the network's kind of positions needs.
    """

    tokens: int
    mask: Bool[Tensor, "batch token"] | None
    packing: Packing | None
    geometry: Geometry

    def padded(self, x: Float[Tensor, "row token width"]) -> Float[Tensor, "batch tokens width"]:
        """One row for each row of the batch."""
        return x if self.packing is None else self.packing.unpack(x)

    def take(
        self, x: Float[Tensor, "row token width"], positions: Int64[Tensor, "batch kept"]
    ) -> Float[Tensor, "batch kept width"]:
        """The vectors at each row's own positions."""
        return take(x, positions) if self.packing is None else self.packing.take(x, positions)


def take(
    x: Float[Tensor, "batch token width"], positions: Int64[Tensor, "batch kept"]
) -> Float[Tensor, "batch kept width"]:
    """The vectors at each row's own positions."""
    return x.gather(1, positions[:, :, None].expand(-1, -1, x.shape[-1]))


class FrozenAttention:
    """Attention whose products run in `dtype`. The scale of the scores is folded into the queries' weights."""

    def __init__(self, attention: Attention, dtype: torch.dtype) -> None:
        self.spec, self.dtype, self.projection = attention.spec, dtype, attention.qkv
        self.out = linear(attention.out, dtype)
        self.packed = kernels_for(attention.out.weight.device, dtype) == PACKED

    # Prepared when first asked for: a block that gives every token needs one of them, the deepest the other two.
    @cached_property
    def _qkv(self) -> Product:
        return self._product(slice(None))

    @cached_property
    def _q(self) -> Product:
        return self._product(slice(None, self.spec.query_width))

    @cached_property
    def _kv(self) -> Product:
        return self._product(slice(self.spec.query_width, None))

    def _product(self, rows: slice) -> Product:
        weight, bias = self.projection.weight.clone(), self.projection.bias
        bias = weight.new_zeros(len(weight)) if bias is None else bias.clone()
        weight[: self.spec.query_width] *= self.spec.scale
        bias[: self.spec.query_width] *= self.spec.scale
        return product(weight[rows], bias[rows], self.dtype)

    def __call__(
        self,
        x: Float[Tensor, "row token width"],
        batch: Batch,
        positions: Int64[Tensor, "batch kept"] | None,
    ) -> Float[Tensor, "#batch kept width"]:
        """What attention adds at `positions` (at every token of `x` when None)."""
        spec, tokens, geometry, packing = self.spec, batch.tokens, batch.geometry, batch.packing
        key_heads = spec.key_heads or spec.heads
        if positions is None:
            q, k, v = self._heads(batch.padded(self._qkv(x))).split((spec.heads, key_heads, key_heads))
        else:
            q, (k, v) = self._heads(self._q(batch.take(x, positions))), self._heads(batch.padded(self._kv(x))).chunk(2)
        if geometry.rotation is not None:
            turn = geometry.rotation[:, None, None]
            q = rotate(q, turn if positions is None else geometry.rotation[:, positions][:, None])
            k = rotate(k, turn)
        allowed = visible(tokens, positions, batch.mask, spec.causal, spec.window, x.device)
        causal = spec.causal and spec.window is None and positions is None
        if key_heads != spec.heads:
            k, v = (part.repeat_interleave(spec.heads // key_heads, dim=0) for part in (k, v))
        added = scores_mask(geometry, positions, allowed)
        mixed = (_mix_short if self.packed and tokens <= SHORT else _mix)(q, k, v, added, causal)
        joined = mixed.permute(1, 2, 0, 3).flatten(-2)
        return self.out(joined if packing is None or positions is not None else packing.pack(joined))

    def _heads(self, x: Float[Tensor, "batch token joined"]) -> Float[Tensor, "head batch token width"]:
        """One vector for each head, heads first: in one copy, or in none for PyTorch's kernel: it takes strides."""
        width = self.spec.query_width // self.spec.heads
        heads = x.unflatten(-1, (-1, width)).permute(2, 0, 1, 3)
        return heads.contiguous() if self.packed else heads


Queries = Float[Tensor, "head batch query width"]
Keys = Float[Tensor, "head batch token width"]


def _mix(q: Queries, k: Keys, v: Keys, added: Tensor | None, causal: bool) -> Queries:
    """softmax(q kᵀ + added) v by PyTorch's own kernel.

    On a GPU that is the flash kernel where there is no mask: all tokens real, or a causal order, in which padding on
    the right needs none. Padding under attention in both directions is a boolean mask over the keys, one row for all
    heads and queries: the memory-efficient kernel runs, and reads next to nothing more. Flash over packed rows would
    save what is computed for padding, which is little, since batches hold rows of nearly one length.
    """
    if added is not None and added.is_floating_point():
        added = added.to(q.dtype)
    by_row = (part.transpose(0, 1) for part in (q, k, v))
    mixed = F.scaled_dot_product_attention(*by_row, attn_mask=added, is_causal=causal and added is None, scale=1.0)
    return mixed.transpose(0, 1)


def _mix_short(q: Queries, k: Keys, v: Keys, added: Tensor | None, causal: bool) -> Queries:
    """The same written out, with the softmax in float32: at these lengths about twice as fast on a CPU."""
    scores = torch.bmm(q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2)).view(*q.shape[:3], k.shape[2])
    if causal and added is None:
        added = torch.ones(1, 1, *scores.shape[2:], dtype=torch.bool).tril()
    if added is not None:
        if not added.is_floating_point():
            added = torch.zeros(added.shape).masked_fill_(~added, -torch.inf)
        added = added.transpose(0, 1).expand(-1, scores.shape[1], -1, -1)
    for rows in pieces(scores.shape[1], 4 * scores[:, 0].numel(), scores.device):
        exact = scores[:, rows].float()
        if added is not None:
            exact += added[:, rows]
        scores[:, rows] = exact.softmax(-1)
    return torch.bmm(scores.flatten(0, 1), v.flatten(0, 1)).view_as(q)
