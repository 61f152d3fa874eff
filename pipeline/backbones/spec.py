"""The choices that make one architecture of the family of transformers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pipeline.backbones.places import Places, Table

TABLE = Table()
UNBOUNDED = 2**31 - 1
"""The positions of a network that has no table of them."""
Activation = Literal["gelu", "gelu_tanh", "relu", "silu"]


@dataclass(frozen=True)
class Spec:
    """The sizes and choices that make one architecture.

    `prenorm`: norm before each sublayer and one at the end (GPT-2), or after each sublayer and one on the embeddings
    (BERT). The dropouts act in training only: on the embeddings, the attention weights, each sublayer's output, and in
    T5 on the feed-forward's inner half and behind the last norm. `gated`: the feed-forward's inner half is multiplied
    with an activated twin. `window`: the furthest distance that a token sees. `scaled`: scores are divided by the root
    of `head_width` (not in T5). `key_heads`: fewer heads of keys and values than of queries, each shared by neighbours.
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
    places: Places = TABLE
    rms_norm: bool = False
    gated: bool = False
    qkv_bias: bool = True
    bias: bool = True
    scaled: bool = True
    window: int | None = None
    key_heads: int | None = None
    head_width: int | None = None
    inner_dropout: float = 0.0
    final_dropout: float = 0.0

    @property
    def query_width(self) -> int:
        """All heads' queries side by side."""
        return self.heads * (self.head_width or self.width // self.heads)

    @property
    def key_width(self) -> int:
        """All heads' keys side by side."""
        return self.query_width // self.heads * (self.key_heads or self.heads)

    @property
    def scale(self) -> float:
        """What scores are multiplied with."""
        return (self.query_width // self.heads) ** -0.5 if self.scaled else 1.0

    @property
    def plain_attention(self) -> bool:
        """Nothing but a causal order and padding decides who sees whom, and every head has its own keys."""
        return (
            isinstance(self.places, Table)
            and self.window is None
            and self.scaled
            and self.key_width == self.query_width
        )
