"""The SUBLEQ machine: four layers that run any SUBLEQ program of their size, whole batches of them at once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from pipeline.looped import subleq_layers as layers
from pipeline.looped.fast_path import FastPath
from pipeline.looped.isa import SubleqProgram
from pipeline.looped.layout import Layout, Sizes
from pipeline.looped.model import Block, Loop, LoopedTransformer, run_until_halt
from pipeline.looped.numerics import (
    LAMBDA,
    SIGNIFICAND_BITS,
    PrecisionError,
    require_address_bits,
    require_float,
    require_full_precision,
    require_lambda,
    require_word_bits,
)
from pipeline.looped.runs import Run

READS = ("direct", "paper")


class SubleqMachine:
    """A frozen network of some sizes, with the way of programs in and memories out.

    Layers: fetch, load, subtract (one layer a chunk of bits), write and branch. Two programs of the same sizes share
    one `network.state_dict()`.
    """

    def __init__(
        self,
        sizes: Sizes,
        dtype: torch.dtype = torch.float32,
        *,
        scale: float | None = None,
        chunk_bits: int | None = None,
        read: str = "direct",
        device: str | torch.device = "cpu",
    ) -> None:
        """Build the network.

        Args:
            sizes: memory cells, instructions, word bits.
            dtype: what states and weights are kept in.
            scale: lambda, the inverse temperature of the attention; ln(8 n) at least.
            chunk_bits: subtract in chunks of so many bits, one layer each; for words wider than the dtype holds.
            read: `direct`, or `paper` for its tied scores, which are less robust (see `subleq_layers`).
            device: where it runs.

        Raises:
            PrecisionError: words, addresses or lambda that the dtype cannot hold, with the limit and a dtype that can.
        """
        require_float(dtype)
        require_full_precision(torch.device(device), dtype)
        if not 2 <= sizes.word_bits <= 63:
            raise PrecisionError(f"words have 2 … 63 bits, not {sizes.word_bits}", mend="use `.word 63` or less")
        if read not in READS:
            raise PrecisionError(f"unknown read {read!r}", mend=f"use one of {', '.join(READS)}")
        if chunk_bits is not None and chunk_bits >= sizes.word_bits:
            chunk_bits = None
        scale = LAMBDA[dtype] if scale is None else scale
        require_address_bits(sizes.address_bits, sizes.columns, dtype)
        require_word_bits(sizes.word_bits, chunk_bits, dtype)
        lowest = math.log(8 * sizes.columns)
        require_lambda(scale, lowest, f"ln(8 n) for n = {sizes.columns} columns: reads would mix columns")
        self.sizes, self.dtype, self.scale, self.read = sizes, dtype, scale, read
        self.device = torch.device(device)
        step = chunk_bits or sizes.word_bits
        chunks = [range(low, min(low + step, sizes.word_bits)) for low in range(0, sizes.word_bits, step)]
        self.layout = Layout(sizes, chunked=len(chunks) > 1)
        stack = [
            layers.fetch(self.layout, scale, read == "paper"),
            layers.load(self.layout, scale, read == "paper"),
            *layers.subtract(self.layout, chunks),
            layers.write_and_branch(self.layout, scale),
        ]
        self.network = LoopedTransformer([Block(heads, ffn, dtype) for heads, ffn in stack]).to(self.device)

    @classmethod
    def for_programs(cls, programs: Sequence[SubleqProgram], dtype: torch.dtype = torch.float32) -> SubleqMachine:
        """The smallest machine that holds every program, in chunks if the dtype is too narrow for their words."""
        require_float(dtype)
        sizes, significand = Sizes.of(programs), SIGNIFICAND_BITS[dtype]
        return cls(sizes, dtype, chunk_bits=None if sizes.word_bits <= significand - 3 else min(16, significand - 5))

    def encode(self, programs: Sequence[SubleqProgram]) -> Float[Tensor, "batch column width"]:
        """The start state of a batch of programs, which may differ in code, data and length."""
        return self.layout.encode(programs, self.dtype).to(self.device)

    def run(
        self, programs: Sequence[SubleqProgram], max_steps: int = 10_000, *, fast: bool = False, check_every: int = 1
    ) -> Run[SubleqProgram]:
        """Loop the network over a batch of programs until all have halted, at most `max_steps` instructions.

        Args:
            programs: what to run, one a batch row.
            max_steps: the limit; a program that reaches it has status `step limit`.
            fast: compute only what column 0 and the memory need, in O(n) a step; the result is the same (see FastPath).
                Without it each step holds n^2 scores a head, which is too much from some ten thousand columns on.
            check_every: loops between looks at the program counters, which wait for a GPU.

        Raises:
            ProgramError: a program that does not fit the machine.
            LatticeError: the state is damaged, so that its memory would mean nothing.
        """
        x = self.encode(programs)
        halts = torch.tensor([program.halt for program in programs], device=self.device)
        if fast:
            path = FastPath(self.network, self.layout, self.scale, self.read)
            split = run_until_halt(
                path.step, path.split(x), lambda parts: path.counter(parts) == halts, max_steps, check_every
            )
            loop = Loop(path.join(x, split.state), split.steps, split.halted)
        else:
            loop = run_until_halt(
                self.network, x, lambda state: self.layout.counter(state) == halts, max_steps, check_every
            )
        self.layout.check_lattice(loop.state)
        return Run(loop, tuple(programs), lambda state: self.layout.memory(state).tolist())
