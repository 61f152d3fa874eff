"""Where everything stands in the SUBLEQ machine's state, and programs in and out of it.

Columns: [0] scratch | [1 … m] memory | [m+1 … m+k] instructions. Bits are bipolar (1 as +1, 0 as -1, absent as 0),
least significant first. The rows are a compact form of those in arXiv 2301.13196, section 4 and figure 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from pipeline.errors import PermafrostError
from pipeline.looped.isa import ProgramError, SubleqProgram


class LatticeError(PermafrostError):
    """A state that is not made of -1, 0 and +1 any more: it was damaged, or the dtype is too narrow."""


class Rows:
    """Named, adjacent rows of a state: `rows["PC"]` is the range of the program counter's bits."""

    def __init__(self, sizes: Iterable[tuple[str, int]]) -> None:
        self._ranges: dict[str, range] = {}
        self.width = 0
        for name, size in sizes:
            self._ranges[name] = range(self.width, self.width + size)
            self.width += size

    def __getitem__(self, name: str) -> range:
        return self._ranges[name]

    def one(self, name: str) -> int:
        """The only row of `name`."""
        (row,) = self._ranges[name]
        return row

    def cut(self, name: str) -> slice:
        """The rows of `name` as a slice."""
        rows = self._ranges[name]
        return slice(rows.start, rows.stop)

    def names(self) -> list[str]:
        """All names, in row order."""
        return list(self._ranges)


@dataclass(frozen=True)
class Sizes:
    """What the weights depend on: memory cells, instructions (HALT included) and bits of a word."""

    memory: int
    code: int
    word_bits: int

    @classmethod
    def of(cls, programs: Sequence[SubleqProgram]) -> Sizes:
        """The smallest sizes that hold every one of `programs`."""
        if not programs:
            raise ProgramError("there is no program to size a machine for", mend="give at least one")
        return cls(*(max(sizes) for sizes in zip(*map(_needs, programs), strict=True)))

    @property
    def columns(self) -> int:
        """n, the length of the sequence."""
        return 1 + self.memory + self.code

    @property
    def address_bits(self) -> int:
        """L = bit_length(n - 1); the official code takes the floor of log2 n, which only serves powers of two."""
        return (self.columns - 1).bit_length()


def _needs(program: SubleqProgram) -> tuple[int, int, int]:
    return len(program.memory), len(program.code), program.word_bits


class Layout:
    """The rows of a machine of some sizes, and the way of programs in and memories out."""

    def __init__(self, sizes: Sizes, chunked: bool = False) -> None:
        """`chunked` adds the rows that carry a borrow and a not-zero mark from one chunk of a word to the next."""
        address, word = sizes.address_bits, sizes.word_bits
        self.sizes = sizes
        self.rows = Rows(
            [
                ("CMD", 3 * address),  # instructions: the columns of a, b and the target
                ("MEM", word),  # memory: the word
                ("POS", address),  # every column but 0: its own number
                ("IND", 1),  # 1 in column 0
                ("PC", address),  # from here on in column 0 only: the program counter,
                ("PCN", address),  # the next one,
                *((name, address) for name in ("RA", "RB", "RC")),  # the fetched instruction,
                *((name, word) for name in ("A", "B")),  # the loaded words,
                ("F", 1),  # the branch flag,
                *((name, int(chunked)) for name in ("CY", "NZ")),  # borrow and not-zero between chunks
                ("BUF", max(3 * address, 2 * word)),  # what the heads read; cleared in every layer
            ]
        )

    @property
    def width(self) -> int:
        """d, the rows of the state."""
        return self.rows.width

    def positions(self) -> Float[Tensor, "column address"]:
        """The code of each column; column 0 has none."""
        codes = to_bits(torch.arange(self.sizes.columns), self.sizes.address_bits)
        codes[0] = 0
        return codes

    def encode(self, programs: Sequence[SubleqProgram], dtype: torch.dtype) -> Float[Tensor, "batch column width"]:
        """The start states of programs. Shorter ones are padded with empty cells and copies of their HALT.

        Raises:
            ProgramError: no program, or one with more cells, more instructions or other words than this layout.
        """
        if not programs:
            raise ProgramError("there is no program to encode", mend="give at least one")
        rows, sizes = self.rows, self.sizes
        x = torch.zeros(len(programs), sizes.columns, self.width, dtype=torch.float64)
        x[:, :, rows.cut("POS")] = self.positions().double()
        x[:, 0, rows.one("IND")] = 1
        x[:, 0, rows.cut("PC")] = to_bits(torch.tensor(1 + sizes.memory), sizes.address_bits)
        for program in programs:
            self._require_fit(program)
        words = [[*program.memory, *[0] * (sizes.memory - len(program.memory))] for program in programs]
        x[:, 1 : 1 + sizes.memory, rows.cut("MEM")] = to_bits(torch.tensor(words), sizes.word_bits).double()
        fields = [self._fields(program) for program in programs]
        x[:, 1 + sizes.memory :, rows.cut("CMD")] = (
            to_bits(torch.tensor(fields), sizes.address_bits).flatten(2).double()
        )
        return x.to(dtype)

    def _fields(self, program: SubleqProgram) -> list[list[int]]:
        """Every instruction as three column numbers."""
        code = [*program.code, *[program.code[-1]] * (self.sizes.code - len(program.code))]
        return [[1 + line.a, 1 + line.b, 1 + self.sizes.memory + line.target] for line in code]

    def _require_fit(self, program: SubleqProgram) -> None:
        limits = (self.sizes.memory, self.sizes.code)
        for what, needed, limit in zip(("memory cells", "instructions"), _needs(program), limits, strict=False):
            if needed > limit:
                raise ProgramError(
                    f"the program has {needed} {what}, the machine holds {limit}", mend="build a larger one"
                )
        if program.word_bits != self.sizes.word_bits:
            raise ProgramError(
                f"the program's words have {program.word_bits} bits, the machine's {self.sizes.word_bits}",
                mend="wrap-around differs between word sizes: assemble the program with word_bits= that of the machine",
            )

    def counter(self, x: Float[Tensor, "batch column width"]) -> Int64[Tensor, " batch"]:
        """Each program's counter, as an index into its code."""
        return from_bits(x[:, 0, self.rows.cut("PC")], signed=False) - (1 + self.sizes.memory)

    def memory(self, x: Float[Tensor, "batch column width"]) -> Int64[Tensor, "batch cell"]:
        """Each program's memory words."""
        return from_bits(x[:, 1 : 1 + self.sizes.memory, self.rows.cut("MEM")], signed=True)

    def check_lattice(self, x: Float[Tensor, "batch column width"], tolerance: float = 1e-3) -> None:
        """Refuse a state with an entry that is not near -1, 0 or +1.

        Raises:
            LatticeError: with the place and the value of the worst entry.
        """
        distance = (x - x.round().clamp(-1, 1)).abs().nan_to_num(nan=torch.inf)
        if float(distance.max()) >= tolerance:
            batch, column, row = (distance == distance.max()).nonzero()[0].tolist()
            name = next(name for name in self.rows.names() if row in self.rows[name])
            value = float(x[batch, column, row])
            raise LatticeError(
                f"row {name} of column {column} in program {batch} holds {value}", mend="use a wider dtype"
            )


def to_bits(numbers: Int64[Tensor, "*shape"], bits: int) -> Float[Tensor, "*shape bits"]:
    """Integers as bipolar two's complement bits, least significant first."""
    return ((numbers.unsqueeze(-1) >> torch.arange(bits)) & 1).to(torch.float32) * 2 - 1


def from_bits(bits: Float[Tensor, "*shape bits"], signed: bool) -> Int64[Tensor, "*shape"]:
    """Bipolar bits as integers: every entry counts by its sign."""
    weights = 2 ** torch.arange(bits.shape[-1], device=bits.device)
    if signed:
        weights[-1] = -weights[-1]
    return ((bits > 0) * weights).sum(-1)
