"""The looped transformer itself: standard attention and a ReLU feed-forward layer, applied to their own output.

    x += sum over heads of softmax(x Wq^T (x Wk^T)^T) x Wv^T Wo^T
    x += relu(x W1^T + b1) W2^T

"Looped Transformers as Programmable Computers" (arXiv 2301.13196), section 3, equations (1) and (2), with columns as
torch's sequence axis. As there: no LayerNorm, no mask. The temperature lambda is part of Wq.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor, nn

from pipeline.looped.gadgets import FeedForwardBuilder, Form

S = TypeVar("S")


@dataclass(frozen=True)
class Head:
    """One attention head in float64: queries and keys (score, width), values (rank, width), output (width, rank)."""

    query: Float64[Tensor, "score width"]
    key: Float64[Tensor, "score width"]
    value: Float64[Tensor, "rank width"]
    output: Float64[Tensor, "width rank"]


def head(
    width: int,
    scores: Sequence[tuple[Form, Form]],
    moves: Sequence[tuple[Form, Form]],
) -> Head:
    """A head from sparse forms.

    Args:
        width: rows of the state.
        scores: one (query form, key form) a score axis; a pair of columns scores the sum of the products.
        moves: one (value form, output form) a value axis: what is averaged, and the rows it is added to.
    """
    query, key = (torch.zeros(len(scores), width, dtype=torch.float64) for _ in range(2))
    value, output = (torch.zeros(len(moves), width, dtype=torch.float64) for _ in range(2))
    for matrices, pairs in (((query, key), scores), ((value, output), moves)):
        for axis, forms in enumerate(pairs):
            for matrix, form in zip(matrices, forms, strict=True):
                for row, weight in form.items():
                    matrix[axis, row] = weight
    return Head(query, key, value, output.T.contiguous())


class Block(nn.Module):
    """One layer. Its weights are buffers: nothing here is ever trained.

    All heads share one score and one value size; smaller heads are padded with zeros, which changes nothing.
    """

    wq: Tensor
    wk: Tensor
    wv: Tensor
    wo: Tensor
    w1: Tensor
    b1: Tensor
    w2: Tensor

    def __init__(self, heads: Sequence[Head], ffn: FeedForwardBuilder, dtype: torch.dtype) -> None:
        super().__init__()
        self.heads = len(heads)
        width, score = ffn.width, max((h.query.shape[0] for h in heads), default=0)
        rank = max((h.value.shape[0] for h in heads), default=0)
        shapes = {"wq": (score, width), "wk": (score, width), "wv": (rank, width), "wo": (width, rank)}
        for name, shape in shapes.items():
            self.register_buffer(name, torch.zeros(self.heads, *shape, dtype=dtype))
        for index, given in enumerate(heads):
            used, kept = given.query.shape[0], given.value.shape[0]
            self.wq[index, :used], self.wk[index, :used] = given.query.to(dtype), given.key.to(dtype)
            self.wv[index, :kept], self.wo[index, :, :kept] = given.value.to(dtype), given.output.to(dtype)
        for name, weights in zip(("w1", "b1", "w2"), ffn.build(), strict=True):
            self.register_buffer(name, weights.to(dtype))

    def attention(self, x: Float[Tensor, "batch column width"]) -> Float[Tensor, "batch head column key"]:
        """The attention weights: row `column` says where that column looks."""
        query = torch.einsum("bcw,hsw->bhcs", x, self.wq)
        key = torch.einsum("bcw,hsw->bhcs", x, self.wk)
        return (query @ key.transpose(-1, -2)).softmax(dim=-1)

    def attend(self, x: Float[Tensor, "batch column width"]) -> Float[Tensor, "batch column width"]:
        """What the heads add to `x`."""
        value = torch.einsum("bcw,hrw->bhcr", x, self.wv)
        return torch.einsum("bhcr,hwr->bcw", self.attention(x) @ value, self.wo)

    def feed_forward(self, x: Float[Tensor, "*columns width"]) -> Float[Tensor, "*columns width"]:
        """What the feed-forward layer adds to `x`."""
        return torch.relu(x @ self.w1.T + self.b1) @ self.w2.T

    def forward(self, x: Float[Tensor, "batch column width"]) -> Float[Tensor, "batch column width"]:
        """The layer, both residual additions included."""
        if self.heads:
            x = x + self.attend(x)
        return x + self.feed_forward(x)


class LoopedTransformer(nn.Module):
    """A stack of blocks that executes one instruction a pass. Its weights depend on sizes only, never on a program."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    @property
    def layers(self) -> list[Block]:
        """The blocks, first to last."""
        return [block for block in self.blocks if isinstance(block, Block)]

    def forward(self, x: Float[Tensor, "batch column width"]) -> Float[Tensor, "batch column width"]:
        """Execute one instruction of every program in the batch."""
        for block in self.layers:
            x = block(x)
        return x

    def hidden_states(
        self, x: Float[Tensor, "batch column width"]
    ) -> tuple[Float[Tensor, "batch column layer width"], Float[Tensor, "batch column width"]]:
        """One instruction with its intermediate states: layer 0 is the input, layer i the output of block i.

        Returns the states and the new `x`, which is the last of them.
        """
        states = [x]
        for block in self.layers:
            x = block(x)
            states.append(x)
        return torch.stack(states, dim=2), x

    def attentions(
        self, x: Float[Tensor, "batch column width"]
    ) -> Iterator[tuple[int, Float[Tensor, "head column key"]]]:
        """For each layer that attends: its number, from 1, and the attention weights of the first program."""
        for number, block in enumerate(self.layers, start=1):
            if block.heads:
                yield number, block.attention(x[:1])[0]
            x = block(x)


@dataclass(frozen=True)
class Loop(Generic[S]):
    """How a run ended: the state, and for each program its instructions before HALT and whether it got there."""

    state: S
    steps: Int64[Tensor, " batch"]
    halted: Bool[Tensor, " batch"]


def run_until_halt(
    step: Callable[[S], S], state: S, halted: Callable[[S], Tensor], max_steps: int, check_every: int = 1
) -> Loop[S]:
    """Apply `step` until every program has halted, at most `max_steps` times.

    A halted program is a fixed point of the whole state, so surplus passes change nothing and steps stay exact.

    Args:
        step: one instruction.
        halted: which programs of a state have halted, (batch,) bool.
        max_steps: passes at most.
        check_every: passes between looks at whether all have halted; each look waits for the device.
    """
    with torch.inference_mode():
        done = halted(state)
        steps = torch.zeros(done.shape, dtype=torch.int64, device=done.device)
        for index in range(max_steps):
            if index % check_every == 0 and bool(done.all()):
                break
            steps += ~done
            state = step(state)
            done = halted(state)
    return Loop(state, steps, done)
