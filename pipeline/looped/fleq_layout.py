"""Where everything stands in the FLEQ machine's state, and programs in and out of it.

Columns: [0] sink | [1 … D] scratch | D columns a memory cell | instructions. Column j of a cell's matrix is the VAL
rows of the cell's column j. All D scratch columns run the same fetch with their own program counter, so nothing needs
to be broadcast. Memory, scratch and instructions have code spaces of their own, and complement rows (1 where
something is *not*) make gates that are exactly 0 where they are open, so that no bit of a real number is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from pipeline.looped.isa import OPERATIONS, Cell, FleqProgram, ProgramError
from pipeline.looped.layout import Rows, from_bits, to_bits

LARGEST = {torch.float64: 2.0**20, torch.float32: 2.0**13}
"""Magnitude that no value in memory may exceed: `step` multiplies it and still counts to 1, `gate` masks it."""
SCALE_DOWN = "scale the data, or use torch.float64 if it is not that already"


@dataclass(frozen=True)
class FleqSizes:
    """What the weights depend on: the size of a cell's matrix, memory cells, instructions (HALT included)."""

    cell: int
    memory: int
    code: int

    @classmethod
    def of(cls, programs: Sequence[FleqProgram]) -> FleqSizes:
        """The smallest sizes that hold every one of `programs`."""
        if not programs:
            raise ProgramError("there is no program to size a machine for", mend="give at least one")
        needs = [(program.size, len(program.memory), len(program.code)) for program in programs]
        return cls(*(max(sizes) for sizes in zip(*needs, strict=True)))

    @property
    def columns(self) -> int:
        """n, the length of the sequence."""
        return 1 + self.cell + self.cell * self.memory + self.code

    @property
    def memory_bits(self) -> int:
        """Bits of a cell number."""
        return max(1, (self.memory - 1).bit_length())

    @property
    def code_bits(self) -> int:
        """Bits of an instruction number."""
        return max(1, (self.code - 1).bit_length())


class FleqLayout:
    """The rows of a machine of some sizes, and the way of programs in and memories out."""

    def __init__(self, sizes: FleqSizes) -> None:
        cell, address, line, ops = sizes.cell, sizes.memory_bits, sizes.code_bits, len(OPERATIONS)
        self.sizes = sizes
        self.rows = Rows(
            [
                *((name, address) for name in ("FA", "FB", "FC", "FF")),  # instructions: cell numbers,
                ("FP", line),  # the target,
                ("FO", ops),  # the operation, one-hot complement
                ("IPOS", line),  # and their own number
                *(
                    ("VAL", cell),
                    ("MPOS", address),
                    ("MOFF", cell),
                ),  # memory: a column, cell number, offset in the cell
                *((name, 1) for name in ("MNUM", "MSQ")),  # the cell's number as a number, and its square
                *(("SOFF", cell), ("NSOFF", cell)),  # scratch: its offset, and the complement
                *((name, 1) for name in ("SINK", "IND", "NIND", "NMEM")),  # sink; scratch; not scratch; not memory
                *((name, line) for name in ("PC", "PCN")),  # from here on in scratch only
                *((name, address) for name in ("RA", "RB", "RC", "RF")),  # the fetched instruction
                *(("RP", line), ("NO", ops)),
                *((name, cell) for name in ("A", "B", "OUT", "WB")),  # operands, result, write buffer
                *((name, cell) for name in ("MB", "LB")),  # what matrix product and indirect load read
                ("TB", cell * cell),  # what transpose reads
                *((name, 1) for name in ("PTR", "FV", "F")),  # pointer, the flag's value, the flag
                ("BUF", 4 * address + line + ops),  # the instruction as read
            ]
        )

    @property
    def width(self) -> int:
        """d, the rows of the state."""
        return self.rows.width

    def encode(self, programs: Sequence[FleqProgram], dtype: torch.dtype) -> Float[Tensor, "batch column width"]:
        """The start states of programs. Shorter ones are padded with empty cells and copies of their HALT.

        Raises:
            ProgramError: a program is larger than this layout, its cells have another size, or hold too large a value.
        """
        x = self._empty().repeat(len(programs), 1, 1)
        sizes, rows = self.sizes, self.rows
        values = x[:, 1 + sizes.cell : 1 + sizes.cell * (1 + sizes.memory), rows.cut("VAL")]
        fields = x[:, -sizes.code :, rows["FA"].start : rows["FO"].stop]
        for state, lines, program in zip(values, fields, programs, strict=True):
            self._require_fit(program)
            self._require_range(program, dtype)
            cells = torch.from_numpy(np.stack(program.memory)).transpose(1, 2).reshape(-1, sizes.cell)
            state[: len(cells)] = cells
            lines.copy_(self._instructions(program))
        return x.to(dtype)

    def _empty(self) -> Float[Tensor, "column width"]:
        """A state without a program: every column's own number and marks."""
        sizes, rows = self.sizes, self.rows
        x = torch.zeros(sizes.columns, self.width, dtype=torch.float64)
        sink, scratch, memory, code = torch.split(x, [1, sizes.cell, sizes.cell * sizes.memory, sizes.code])
        x[:, [*rows["NSOFF"], rows.one("NIND"), rows.one("NMEM")]] = 1
        sink[:, rows.one("SINK")] = 1
        scratch[:, rows.cut("SOFF")] = torch.eye(sizes.cell, dtype=x.dtype)
        scratch[:, rows.cut("NSOFF")] -= torch.eye(sizes.cell, dtype=x.dtype)
        scratch[:, rows.one("IND")], scratch[:, rows.one("NIND")] = 1, 0
        scratch[:, rows.cut("PC")] = -1
        numbers = torch.arange(sizes.memory).repeat_interleave(sizes.cell)
        memory[:, rows.cut("MPOS")] = to_bits(numbers, sizes.memory_bits).double()
        memory[:, rows.cut("MOFF")] = torch.eye(sizes.cell, dtype=x.dtype).repeat(sizes.memory, 1)
        memory[:, rows.one("MNUM")], memory[:, rows.one("MSQ")] = numbers.double(), numbers.double() ** 2
        memory[:, rows.one("NMEM")] = 0
        code[:, rows.cut("IPOS")] = to_bits(torch.arange(sizes.code), sizes.code_bits).double()
        return x

    def _instructions(self, program: FleqProgram) -> Float[Tensor, "code fields"]:
        code = [*program.code, *[program.code[-1]] * (self.sizes.code - len(program.code))]
        cells = torch.tensor([[line.a, line.b, line.c, line.flag] for line in code])
        targets = torch.tensor([line.target for line in code])
        chosen = torch.tensor([OPERATIONS.index(line.op) for line in code])
        operations = 1 - torch.nn.functional.one_hot(chosen, len(OPERATIONS))
        addresses = to_bits(cells, self.sizes.memory_bits).flatten(1)
        return torch.cat([addresses, to_bits(targets, self.sizes.code_bits), operations], dim=1).double()

    def _require_fit(self, program: FleqProgram) -> None:
        sizes = self.sizes
        if program.size != sizes.cell:
            raise ProgramError(
                f"the program's cells have size {program.size}, the machine's {sizes.cell}",
                mend=f"assemble it with `.cells {sizes.cell}`",
            )
        if len(program.memory) > sizes.memory or len(program.code) > sizes.code:
            raise ProgramError(
                f"the program has {len(program.memory)} cells and {len(program.code)} instructions, "
                f"the machine holds {sizes.memory} and {sizes.code}",
                mend="build a larger one",
            )

    def _require_range(self, program: FleqProgram, dtype: torch.dtype) -> None:
        largest, limit = max(float(np.abs(cell).max()) for cell in program.memory), LARGEST[dtype]
        if largest > limit:
            raise ProgramError(f"{largest:g} is beyond {limit:g}, the largest a cell holds in {dtype}", mend=SCALE_DOWN)

    def magnitude(self, x: Float[Tensor, "batch column width"]) -> Float[Tensor, " batch"]:
        """The largest absolute value in each program's memory."""
        sizes = self.sizes
        return x[:, 1 + sizes.cell : 1 + sizes.cell * (1 + sizes.memory), self.rows.cut("VAL")].abs().amax((1, 2))

    def counter(self, x: Float[Tensor, "batch column width"]) -> Int64[Tensor, " batch"]:
        """Each program's counter, as an index into its code."""
        return from_bits(x[:, 1, self.rows.cut("PC")], signed=False)

    def memory(self, x: Float[Tensor, "batch column width"]) -> list[list[Cell]]:
        """Each program's memory: one (size, size) float64 matrix a cell."""
        sizes = self.sizes
        columns = x[:, 1 + sizes.cell : 1 + sizes.cell * (1 + sizes.memory), self.rows.cut("VAL")].double().cpu()
        cells = columns.reshape(len(x), sizes.memory, sizes.cell, sizes.cell).transpose(2, 3).numpy()
        return [list(program) for program in cells]
