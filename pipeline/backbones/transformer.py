"""The transformer that every family is an instance of, written so that each hidden state has one meaning.

`layer 0` is what enters the first block, `layer i` what leaves block i, `final` what leaves the last norm (for
families that normalise after each block it equals the last layer). The families differ in the choices of `Spec` and in
the names of their tensors (`families.py`), not in code.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from pipeline.backbones.attention import attend
from pipeline.backbones.attention_mask import scores_mask, visible
from pipeline.backbones.dropout import Dropout
from pipeline.backbones.gelu import gelu_tanh
from pipeline.backbones.places import Geometry, Relative, Rotary, Table, relative_buckets, rotate, rotation
from pipeline.backbones.spec import Activation, Spec

PLAIN = Geometry()
Kept = int | Int64[Tensor, "batch kept"]
"""Whose output is wanted: so many of the last tokens, or the tokens at each row's own places."""


class RmsNorm(nn.RMSNorm):
    """The root-mean-square norm (arXiv 1910.07467) in float32; autocast sees to that for LayerNorm alone."""

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """x over its root mean square, times the weight."""
        return super().forward(x.float())


def make_norm(spec: Spec) -> nn.Module:
    """LayerNorm, or the norm without mean and bias."""
    return (RmsNorm if spec.rms_norm else nn.LayerNorm)(spec.width, eps=spec.norm_eps)


def by_heads(x: Float[Tensor, "batch token joined"], heads: int) -> Float[Tensor, "batch head token width"]:
    """One vector for each head, without a copy."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def rows_at(x: Float[Tensor, "batch token width"], kept: Kept) -> Float[Tensor, "batch kept width"]:
    """The vectors of the tokens that are kept."""
    return x[:, -kept:] if isinstance(kept, int) else x.take_along_dim(kept[:, :, None], 1)


class Attention(nn.Module):
    """Multi-head self-attention with one fused projection to queries, keys and values."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec = spec
        self.qkv = nn.Linear(spec.width, spec.query_width + 2 * spec.key_width, bias=spec.qkv_bias)
        self.out = nn.Linear(spec.query_width, spec.width, bias=spec.bias)

    def forward(
        self,
        x: Float[Tensor, "batch token width"],
        kept: Kept,
        mask: Bool[Tensor, "batch token"] | None,
        geometry: Geometry,
    ) -> Float[Tensor, "batch kept width"]:
        """Attend from the `kept` tokens to all; `mask` is true at tokens that may be attended to."""
        spec, tokens = self.spec, x.shape[1]
        dropped = spec.attention_dropout if self.training else 0.0
        whole = isinstance(kept, int) and kept == tokens
        places = torch.arange(tokens - kept, tokens, device=x.device)[None] if isinstance(kept, int) else kept
        if whole:
            places, queries, rest = None, None, self.qkv(x)
        elif not isinstance(self.qkv, nn.Linear):  # one with a low-rank update, which has no rows of its own
            projected = self.qkv(x)
            queries, rest = rows_at(projected[..., : spec.query_width], kept), projected[..., spec.query_width :]
        else:
            bias = self.qkv.bias
            split = (None, None) if bias is None else (bias[: spec.query_width], bias[spec.query_width :])
            queries = F.linear(rows_at(x, kept), self.qkv.weight[: spec.query_width], split[0])
            rest = F.linear(x, self.qkv.weight[spec.query_width :], split[1])
        causal = spec.causal and not (isinstance(kept, int) and kept == 1)  # the last token sees all
        allowed = visible(tokens, places, mask, causal, spec.window, x.device)
        if torch.is_grad_enabled() and not x.is_cuda and spec.plain_attention:
            if allowed is None and causal:
                allowed = torch.ones(1, 1, tokens, tokens, dtype=torch.bool).tril()
            return self.out(attend(queries, rest, spec.heads, allowed, dropped))
        sizes = (spec.query_width, spec.key_width, spec.key_width)
        q, k, v = rest.split(sizes, dim=-1) if queries is None else (queries, *rest.split(sizes[1:], dim=-1))
        key_heads = spec.key_heads or spec.heads
        q, k, v = by_heads(q, spec.heads), by_heads(k, key_heads), by_heads(v, key_heads)
        if geometry.rotation is not None:
            at = (
                geometry.rotation[:, None, None, -kept:]
                if isinstance(kept, int)
                else geometry.rotation[:, kept][:, :, None]
            )
            q, k = rotate(q, at), rotate(k, geometry.rotation[:, None, None])
        added = scores_mask(geometry, places, allowed)
        mixed = F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=added.to(q.dtype) if added is not None and added.is_floating_point() else added,
            dropout_p=dropped,
            is_causal=causal and added is None,
            scale=spec.scale,
            enable_gqa=key_heads != spec.heads,
        )
        return self.out(mixed.transpose(1, 2).flatten(-2))


class Block(nn.Module):
    """Attention and feed-forward, each with a residual and a norm."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec = spec
        self.norm1 = make_norm(spec)
        self.attention = Attention(spec)
        self.norm2 = make_norm(spec)
        self.up = nn.Linear(spec.width, (1 + spec.gated) * spec.inner_width, bias=spec.bias)
        self.down = nn.Linear(spec.inner_width, spec.width, bias=spec.bias)
        self.drop = Dropout(spec.residual_dropout)
        self.inner_drop = Dropout(spec.inner_dropout)

    def forward(
        self,
        x: Float[Tensor, "batch token width"],
        kept: Kept | None = None,
        mask: Bool[Tensor, "batch token"] | None = None,
        geometry: Geometry = PLAIN,
    ) -> Float[Tensor, "batch kept width"]:
        """The block's output at the `kept` tokens (default: all). Exact: other tokens serve as keys only."""
        kept = x.shape[1] if kept is None else kept
        y = rows_at(x, kept)
        if self.spec.prenorm:
            y = y + self.drop(self.attention(self.norm1(x), kept, mask, geometry))
            return y + self.drop(self._feed_forward(self.norm2(y)))
        y = self.norm1(y + self.drop(self.attention(x, kept, mask, geometry)))
        return self.norm2(y + self.drop(self._feed_forward(y)))

    def _feed_forward(self, x: Tensor) -> Tensor:
        inner = self.up(x)
        if self.spec.gated:
            gate, inner = inner.chunk(2, dim=-1)
            return self.down(self.inner_drop(activate(gate, self.spec.activation) * inner))
        tabled = torch.is_grad_enabled() and self.spec.activation == "gelu_tanh" and not inner.is_cuda
        if tabled and inner.dtype == torch.bfloat16:
            return self.down(self.inner_drop(gelu_tanh(inner)))
        return self.down(self.inner_drop(activate(inner, self.spec.activation)))


def activate(x: Float[Tensor, "*shape"], activation: Activation) -> Float[Tensor, "*shape"]:
    """The activation by name."""
    if activation in ("relu", "silu"):
        return F.relu(x) if activation == "relu" else F.silu(x)
    return F.gelu(x, approximate="tanh" if activation == "gelu_tanh" else "none")


class Transformer(nn.Module):
    """A frozen network without its input and output layers: vectors in, hidden states out."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec = spec
        table = isinstance(spec.places, Table)
        self.position = nn.Parameter(torch.empty(spec.positions, spec.width)) if table else None
        self.relative = nn.Embedding(spec.places.buckets, spec.heads) if isinstance(spec.places, Relative) else None
        self.token_type = nn.Parameter(torch.empty(spec.width)) if spec.token_types else None
        self.embedding_norm = None if spec.prenorm else make_norm(spec)
        self.embedding_drop = Dropout(spec.embedding_dropout)
        self.blocks = nn.ModuleList(Block(spec) for _ in range(spec.layers))
        self.final_norm = make_norm(spec) if spec.prenorm else None
        self.final_drop = Dropout(spec.final_dropout)

    @property
    def depth(self) -> int:
        """The number of blocks."""
        return len(self.blocks)

    def embed(self, x: Float[Tensor, "batch token width"]) -> Float[Tensor, "batch token width"]:
        """Layer 0: positions (and BERT's token type and norm) added to the input vectors."""
        if self.position is not None:
            x = x + self.position[: x.shape[1]]
        if self.token_type is not None:
            x = x + self.token_type
        if self.embedding_norm is not None:
            x = self.embedding_norm(x)
        return self.embedding_drop(x)

    def geometry(self, tokens: int, device: torch.device) -> Geometry:
        """What the blocks share for an input of so many tokens."""
        places = self.spec.places
        if isinstance(places, Rotary):
            return Geometry(rotation=rotation(places, self.spec.query_width // self.spec.heads, tokens, device))
        if self.relative is not None and isinstance(places, Relative):
            return Geometry(bias=self.relative(relative_buckets(places, tokens, device)).permute(2, 0, 1))
        return PLAIN

    def forward(
        self,
        x: Float[Tensor, "batch token width"],
        kept: Kept,
        mask: Bool[Tensor, "batch token"] | None = None,
    ) -> Float[Tensor, "batch kept width"]:
        """`final` at the `kept` tokens; the last block computes only those."""
        hidden = self.embed(x)
        geometry = self.geometry(x.shape[1], x.device)
        if not self.blocks:
            hidden = rows_at(hidden, kept)
        for index, block in enumerate(self.blocks):
            hidden = block(hidden, kept if index == len(self.blocks) - 1 else None, mask, geometry)
        return self.final_drop(self.normalise(hidden))

    def normalise(self, hidden: Float[Tensor, "batch token width"]) -> Float[Tensor, "batch token width"]:
        """`final` from the last block's output."""
        return hidden if self.final_norm is None else self.final_norm(hidden)
