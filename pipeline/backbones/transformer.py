"""The transformer that every family is an instance of, written so that each hidden state has one meaning.

`layer 0` is what enters the first block, `layer i` what leaves block i, `final` what leaves the last norm (for
families that normalise after each block it equals the last layer). GPT-2 and BERT differ in the choices of `Spec`
and in the names of their tensors (`families.py`), not in code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from pipeline.backbones.attention import attend
from pipeline.backbones.dropout import Dropout
from pipeline.backbones.gelu import gelu_tanh

Activation = Literal["gelu", "gelu_tanh", "relu"]


@dataclass(frozen=True)
class Spec:
    """The sizes and choices that make one architecture.

    `prenorm`: norm before each sublayer and one at the end (GPT-2), or after each sublayer and one on the embeddings
    (BERT). The dropouts act in training only: on the embeddings, the attention weights, and each sublayer's output.
    """

    width: int
    layers: int
    heads: int
    inner_width: int
    positions: int
    norm_eps: float
    activation: Activation
    prenorm: bool
    causal: bool
    token_types: bool
    embedding_dropout: float
    attention_dropout: float
    residual_dropout: float


class Attention(nn.Module):
    """Multi-head self-attention with one fused projection to queries, keys and values."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.heads, self.causal, self.dropout = spec.heads, spec.causal, spec.attention_dropout
        self.qkv = nn.Linear(spec.width, 3 * spec.width)
        self.out = nn.Linear(spec.width, spec.width)

    def forward(
        self, x: Float[Tensor, "batch token width"], last: int, mask: Bool[Tensor, "batch token"] | None
    ) -> Float[Tensor, "batch last width"]:
        """Attend from the last `last` tokens to all; `mask` is true at tokens that may be attended to."""
        whole, width = last == x.shape[1], x.shape[-1]
        if whole:
            queries, rest = None, self.qkv(x)
        elif not isinstance(self.qkv, nn.Linear):  # one with a low-rank update, which has no rows of its own
            queries, rest = (projected := self.qkv(x))[:, -last:, :width], projected[..., width:]
        else:
            queries = F.linear(x[:, -last:], self.qkv.weight[:width], self.qkv.bias[:width])
            rest = F.linear(x, self.qkv.weight[width:], self.qkv.bias[width:])
        allowed = self._allowed(last, x.shape[1], x.device, mask)
        if self.training and not x.is_cuda:
            if allowed is None and self.causal and last > 1:
                allowed = torch.ones(1, 1, last, last, dtype=torch.bool).tril()
            return self.out(attend(queries, rest, self.heads, allowed, self.dropout))
        q, k, v = rest.split(width, dim=-1) if queries is None else (queries, *rest.split(width, dim=-1))
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (q, k, v))
        causal = self.causal and allowed is None and last > 1
        p = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, dropout_p=p, is_causal=causal)
        return self.out(mixed.transpose(1, 2).flatten(-2))

    def _allowed(self, last: int, tokens: int, device: torch.device, mask: Tensor | None) -> Tensor | None:
        """Which keys each query may see, or None when a plain (causal) kernel says the same."""
        keys = None if mask is None else mask[:, None, None, :]
        if not self.causal or last == 1 or (mask is None and last == tokens):
            return keys
        causal = torch.ones(last, tokens, dtype=torch.bool, device=device).tril(tokens - last)[None, None]
        return causal if keys is None else keys & causal


class Block(nn.Module):
    """Attention and feed-forward, each with a residual and a norm."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.prenorm = spec.prenorm
        self.activation: Activation = spec.activation
        self.norm1 = nn.LayerNorm(spec.width, eps=spec.norm_eps)
        self.attention = Attention(spec)
        self.norm2 = nn.LayerNorm(spec.width, eps=spec.norm_eps)
        self.up = nn.Linear(spec.width, spec.inner_width)
        self.down = nn.Linear(spec.inner_width, spec.width)
        self.drop = Dropout(spec.residual_dropout)

    def forward(
        self,
        x: Float[Tensor, "batch token width"],
        last: int | None = None,
        mask: Bool[Tensor, "batch token"] | None = None,
    ) -> Float[Tensor, "batch last width"]:
        """The block's output at the last `last` tokens (default: all). Exact: other tokens serve as keys only."""
        last = x.shape[1] if last is None else last
        kept = x[:, -last:]
        if self.prenorm:
            kept = kept + self.drop(self.attention(self.norm1(x), last, mask))
            return kept + self.drop(self._feed_forward(self.norm2(kept)))
        kept = self.norm1(kept + self.drop(self.attention(x, last, mask)))
        return self.norm2(kept + self.drop(self._feed_forward(kept)))

    def _feed_forward(self, x: Tensor) -> Tensor:
        inner = self.up(x)
        if self.activation == "relu":
            return self.down(F.relu(inner))
        if self.training and self.activation == "gelu_tanh" and inner.dtype == torch.bfloat16 and not inner.is_cuda:
            return self.down(gelu_tanh(inner))
        return self.down(F.gelu(inner, approximate="tanh" if self.activation == "gelu_tanh" else "none"))


class Transformer(nn.Module):
    """A frozen network without its input and output layers: vectors in, hidden states out."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec = spec
        self.position = nn.Parameter(torch.empty(spec.positions, spec.width))
        self.token_type = nn.Parameter(torch.empty(spec.width)) if spec.token_types else None
        self.embedding_norm = None if spec.prenorm else nn.LayerNorm(spec.width, eps=spec.norm_eps)
        self.embedding_drop = Dropout(spec.embedding_dropout)
        self.blocks = nn.ModuleList(Block(spec) for _ in range(spec.layers))
        self.final_norm = nn.LayerNorm(spec.width, eps=spec.norm_eps) if spec.prenorm else None

    def embed(self, x: Float[Tensor, "batch token width"]) -> Float[Tensor, "batch token width"]:
        """Layer 0: positions (and BERT's token type and norm) added to the input vectors."""
        x = x + self.position[: x.shape[1]]
        if self.token_type is not None:
            x = x + self.token_type
        if self.embedding_norm is not None:
            x = self.embedding_norm(x)
        return self.embedding_drop(x)

    def forward(
        self,
        x: Float[Tensor, "batch token width"],
        last: int,
        mask: Bool[Tensor, "batch token"] | None = None,
    ) -> Float[Tensor, "batch last width"]:
        """`final` at the last `last` tokens; the last block computes only those."""
        hidden = self.embed(x)
        if not self.blocks:
            hidden = hidden[:, -last:]
        for index, block in enumerate(self.blocks):
            hidden = block(hidden, last if index == len(self.blocks) - 1 else None, mask)
        return self.normalise(hidden)

    def normalise(self, hidden: Float[Tensor, "batch token width"]) -> Float[Tensor, "batch token width"]:
        """`final` from the last block's output."""
        return hidden if self.final_norm is None else self.final_norm(hidden)
