"""The FLEQ machine: seven layers that run programs whose instructions are functions of matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from pipeline.looped.fleq_blocks import FunctionWeights
from pipeline.looped.fleq_layers import fleq_layers
from pipeline.looped.fleq_layout import LARGEST, FleqLayout, FleqSizes
from pipeline.looped.isa import FleqProgram
from pipeline.looped.model import Block, LoopedTransformer, run_until_halt
from pipeline.looped.numerics import SIGNIFICAND_BITS, PrecisionError, name_of, require_full_precision, require_lambda
from pipeline.looped.runs import Run

FUNCTION_WEIGHTS = {
    torch.float64: FunctionWeights(product_scale=5e-5, sink=31.0, slope=2.0**20),
    torch.float32: FunctionWeights(product_scale=1.2e-2, sink=14.0, slope=2.0**10),
}
SCALE = {torch.float64: 800.0, torch.float32: 128.0}
"""lambda at which e^-lambda underflows to 0: what attention copies, it copies bit for bit."""


class FleqMachine:
    """A frozen network of some sizes, with the way of programs in and memories out.

    The matrix product is accurate to 1e-10 in float64 and 1e-4 in float32 while its entries stay below 5.8; beyond 60
    (float64) or 10 (float32) the error grows with their fifth power, so scale the inputs. Everything else is exact to
    the dtype's rounding.
    """

    def __init__(
        self,
        sizes: FleqSizes,
        dtype: torch.dtype = torch.float64,
        *,
        scale: float | None = None,
        weights: FunctionWeights | None = None,
        device: str | torch.device = "cpu",
    ) -> None:
        """Build the network.

        Args:
            sizes: size of a cell's matrix, memory cells, instructions.
            dtype: float64, or float32 for three to four digits.
            scale: lambda, the inverse temperature of the attention.
            weights: accuracy of the function blocks.
            device: where it runs.

        Raises:
            PrecisionError: a dtype, a lambda or a number of cells that real numbers cannot be copied exactly with.
        """
        if dtype not in FUNCTION_WEIGHTS:
            raise PrecisionError(f"FLEQ computes with real numbers, {dtype} is too coarse", mend="use torch.float64")
        require_full_precision(torch.device(device), dtype)
        scale = SCALE[dtype] if scale is None else scale
        significand = SIGNIFICAND_BITS[dtype]
        lowest = math.log(sizes.columns) + significand * math.log(2)
        require_lambda(scale, lowest, f"ln(n 2^{significand}) for n = {sizes.columns} columns: copies would be inexact")
        limit = math.isqrt(int(2.0 ** (significand - 4) / (2 * scale)))
        if sizes.memory > limit:
            raise PrecisionError(
                f"{sizes.memory} cells: {name_of(dtype)} at lambda {scale:g} tells {limit} apart by number",
                mend="use dtype=torch.float64" if dtype != torch.float64 else "use a smaller lambda",
            )
        self.sizes, self.dtype, self.device = sizes, dtype, torch.device(device)
        self.layout = FleqLayout(sizes)
        stack = fleq_layers(self.layout, scale, weights or FUNCTION_WEIGHTS[dtype])
        self.network = LoopedTransformer([Block(heads, ffn, dtype) for heads, ffn in stack]).to(self.device)

    @classmethod
    def for_programs(cls, programs: Sequence[FleqProgram], dtype: torch.dtype = torch.float64) -> FleqMachine:
        """The smallest machine that holds every program."""
        return cls(FleqSizes.of(programs), dtype)

    def encode(self, programs: Sequence[FleqProgram]) -> Float[Tensor, "batch column width"]:
        """The start state of a batch of programs, which may differ in code, data and length."""
        return self.layout.encode(programs, self.dtype).to(self.device)

    def run(
        self, programs: Sequence[FleqProgram], max_steps: int = 10_000, *, check_every: int = 1
    ) -> Run[FleqProgram]:
        """Loop the network over a batch of programs until all have halted, at most `max_steps` instructions.

        Args:
            programs: what to run, one a batch row.
            max_steps: the limit; a program that reaches it has status `step limit`.
            check_every: loops between looks at the program counters, which wait for a GPU.

        Raises:
            ProgramError: a program that does not fit the machine.
            PrecisionError: a value left the range that the machine computes in, so that memory would mean nothing.
        """
        halts = torch.tensor([program.halt for program in programs], device=self.device)
        start = self.encode(programs)
        largest = self.layout.magnitude(start)

        def step(x: Tensor) -> Tensor:
            nonlocal largest
            x = self.network(x)
            largest = torch.maximum(largest, self.layout.magnitude(x))
            return x

        loop = run_until_halt(step, start, lambda x: self.layout.counter(x) == halts, max_steps, check_every)
        require_range(largest, self.dtype)
        return Run(loop, tuple(programs), self.layout.memory)


def require_range(largest: Float[Tensor, " batch"], dtype: torch.dtype) -> None:
    """Refuse a run in which a value of some program was beyond what the function blocks can hold, or no number.

    Args:
        largest: the largest magnitude that each program's memory has reached.
        dtype: what the machine computes in.

    Raises:
        PrecisionError: with the program's place in the batch and the value.
    """
    for program, value in enumerate(largest.tolist()):
        if not value <= LARGEST[dtype]:
            raise PrecisionError(
                f"program {program} came to hold {value:.3g}; the machine computes up to {LARGEST[dtype]:g}",
                mend="scale the data, or look with a trace (--trace) for what diverges",
            )
