"""The SUBLEQ machine in O(n) a step: only what can change is computed, with the same weights.

In the dense network each column asks in every layer. But what fetch, load and subtract put into any column other than
scratch is cleared again by the same layer, so column 0 alone needs them. In the write head a memory column can only
be won by itself or by the scratch column; the others together weigh at most n e^-lambda, which error correction
removes. The feed-forward layers see column 0, and memory columns through those units that can fire there. Tests hold
that the states equal the dense network's.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from pipeline.looped.layout import Layout, from_bits
from pipeline.looped.model import Block, LoopedTransformer
from pipeline.looped.numerics import PrecisionError


@dataclass(frozen=True)
class Parts:
    """A state taken apart: what a step changes, and what the heads read of the rest."""

    scratch: Float[Tensor, "batch width"]
    memory: Float[Tensor, "batch cell word"]
    commands: Float[Tensor, "batch column fields"]


class FastPath:
    """One instruction on `Parts`; `split` and `join` go from and to whole states."""

    def __init__(self, network: LoopedTransformer, layout: Layout, scale: float, read: str = "direct") -> None:
        """Cut the units that can fire in memory columns out of the last layer.

        Raises:
            PrecisionError: the network reads with tied scores, where column 0 also reads itself.
        """
        if read != "direct":
            raise PrecisionError(f"the fast path serves direct reads, not {read!r}", mend="run with fast=False")
        self.layout, self.rows, self.scale = layout, layout.rows, scale
        self.fetch, self.load, *self.subtract, self.write = network.layers
        weights = self.write
        self.keys = layout.positions().to(weights.w1)
        self.cell_keys = self.keys[1 : 1 + layout.sizes.memory]
        live = [*self.rows["MEM"], *self.rows["BUF"][: layout.sizes.word_bits]]
        units = (weights.w1[:, live] != 0).any(dim=1)
        self.cell_in = weights.w1[units][:, live].T.contiguous()
        self.cell_bias = weights.b1[units]
        self.cell_out = weights.w2[self.rows.cut("MEM")][:, units].T.contiguous()

    def split(self, x: Float[Tensor, "batch column width"]) -> Parts:
        """Take a state apart."""
        memory = x[:, 1 : 1 + self.layout.sizes.memory, self.rows.cut("MEM")]
        return Parts(x[:, 0].clone(), memory.clone(), x[:, :, self.rows.cut("CMD")].clone())

    def join(self, x: Float[Tensor, "batch column width"], parts: Parts) -> Float[Tensor, "batch column width"]:
        """The state `x` with the changed parts put back."""
        x = x.clone()
        x[:, 0] = parts.scratch
        x[:, 1 : 1 + self.layout.sizes.memory, self.rows.cut("MEM")] = parts.memory
        return x

    def counter(self, parts: Parts) -> Int64[Tensor, " batch"]:
        """Each program's counter, as an index into its code."""
        return from_bits(parts.scratch[:, self.rows.cut("PC")], signed=False) - (1 + self.layout.sizes.memory)

    def step(self, parts: Parts) -> Parts:
        """Execute one instruction of every program."""
        rows, word = self.rows, self.layout.sizes.word_bits
        start = rows["BUF"].start
        scratch = self._feed(self.fetch, self._read(parts.scratch, "PC", parts.commands, start))
        loaded = self._read(scratch, "RA", parts.memory, start)
        loaded = self._read(loaded, "RB", parts.memory, start + word)
        scratch = self._feed(self.load, loaded)
        for block in self.subtract:
            scratch = self._feed(block, scratch)
        return Parts(self._feed(self.write, scratch), self._write(scratch, parts.memory), parts.commands)

    def _read(
        self, scratch: Float[Tensor, "batch width"], register: str, values: Float[Tensor, "batch source rank"], to: int
    ) -> Float[Tensor, "batch width"]:
        """Column 0's attention: `values` of the column that the register names, added to the rows from `to` on.

        The softmax runs over all columns; where `values` are those of memory alone, the others hold zeros.
        """
        weights = (self.scale * scratch[:, self.rows.cut(register)] @ self.keys.T).softmax(dim=-1)
        if values.shape[1] != self.keys.shape[0]:
            weights = weights[:, 1 : 1 + values.shape[1]]
        read = torch.bmm(weights.unsqueeze(1), values).squeeze(1)
        scratch = scratch.clone()
        scratch[:, to : to + read.shape[1]] += read
        return scratch

    def _feed(self, block: Block, scratch: Float[Tensor, "batch width"]) -> Float[Tensor, "batch width"]:
        return scratch + block.feed_forward(scratch)

    def _write(
        self, scratch: Float[Tensor, "batch width"], memory: Float[Tensor, "batch cell word"]
    ) -> Float[Tensor, "batch cell word"]:
        """The write head between each memory column and the scratch column, and error correction."""
        bits = self.keys.shape[1]
        own = float(bits)
        other = (1 + 1 / (bits - 1)) * (scratch[:, self.rows.cut("RB")] @ self.cell_keys.T)
        share = torch.sigmoid(self.scale * (other - own)).unsqueeze(-1)
        read = share * scratch[:, self.rows.cut("B")].unsqueeze(1) + (1 - share) * memory
        hidden = torch.relu(torch.cat([memory, read], dim=-1) @ self.cell_in + self.cell_bias)
        return memory + hidden @ self.cell_out
