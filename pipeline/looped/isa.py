"""The two instruction sets of the looped transformer, and a program as data: memory, code and the names in them.

SUBLEQ and FLEQ follow "Looped Transformers as Programmable Computers" (arXiv 2301.13196), sections 4 and 5. Addresses
here count from 0 within memory or within the code; only `layout` and `fleq_layout` know columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from jaxtyping import Float64

from pipeline.errors import PermafrostError
from pipeline.params import nearest

ZERO = "Z"
"""The cell that every program has and that always holds 0."""
HALT = "HALT"
"""The label of the last instruction of every program, which jumps to itself and changes nothing."""

OPERATIONS = ("mov", "add", "sub", "relu", "step", "nstep", "gate", "mm", "tr", "load")
"""FLEQ's function blocks in opcode order; `oracle.apply` defines each."""
UNARY = frozenset({"mov", "relu", "step", "nstep", "tr", "load"})

Cell = Float64[np.ndarray, "size size"]


class ProgramError(PermafrostError):
    """A program or a value for it that the machine cannot take."""


@dataclass(frozen=True)
class Subleq:
    """`mem[b] -= mem[a]` (wrapping); if the new `mem[b] <= 0` go to instruction `target`, else to the next one."""

    a: int
    b: int
    target: int


@dataclass(frozen=True)
class Fleq:
    """`mem[c] = op(mem[a], mem[b])`; then, if element [0, 0] of `mem[flag]` is <= 0, go to `target`, else on."""

    op: str
    a: int
    b: int
    c: int
    flag: int
    target: int


@dataclass(frozen=True)
class Symbol:
    """A named run of memory cells: where it starts and how many cells it has."""

    start: int
    length: int


@dataclass(frozen=True)
class SubleqProgram:
    """An assembled SUBLEQ program. `memory` holds two's complement words of `word_bits`; `code` ends with HALT."""

    memory: tuple[int, ...]
    code: tuple[Subleq, ...]
    word_bits: int
    symbols: Mapping[str, Symbol]
    labels: Mapping[str, int]

    @property
    def halt(self) -> int:
        """The instruction whose execution changes nothing."""
        return len(self.code) - 1

    def values(self, memory: Sequence[int], name: str) -> list[int]:
        """The words of the array `name` in a memory of this program."""
        symbol = find_symbol(self.symbols, name)
        return list(memory[symbol.start : symbol.start + symbol.length])

    def with_values(self, values: Mapping[str, Sequence[int]]) -> SubleqProgram:
        """The same program on other data.

        Raises:
            ProgramError: an unknown name, more or fewer values than the array has, a value that the word cannot hold.
        """
        memory = list(self.memory)
        for name, words in values.items():
            symbol = find_symbol(self.symbols, name)
            require_length(name, len(words), symbol.length)
            for word in words:
                require_word(word, self.word_bits, f"{name} = {word}")
            memory[symbol.start : symbol.start + symbol.length] = words
        return replace(self, memory=tuple(memory))


@dataclass(frozen=True)
class FleqProgram:
    """An assembled FLEQ program. Every memory cell is a (size, size) float64 matrix; `code` ends with HALT.

    A scalar sits at [0, 0], a column vector in column 0, with zeros elsewhere.
    """

    memory: tuple[Cell, ...]
    code: tuple[Fleq, ...]
    size: int
    symbols: Mapping[str, Symbol]
    labels: Mapping[str, int]

    @property
    def halt(self) -> int:
        """The instruction whose execution changes nothing."""
        return len(self.code) - 1

    def values(self, memory: Sequence[Cell], name: str) -> list[Cell]:
        """The cells of `name` in a memory of this program."""
        symbol = find_symbol(self.symbols, name)
        return list(memory[symbol.start : symbol.start + symbol.length])

    def with_values(self, values: Mapping[str, Sequence[np.ndarray]]) -> FleqProgram:
        """The same program on other data; each value is a scalar, a vector or a matrix no larger than a cell.

        Raises:
            ProgramError: an unknown name, more or fewer values than the array has, a value larger than a cell.
        """
        memory = list(self.memory)
        for name, cells in values.items():
            symbol = find_symbol(self.symbols, name)
            require_length(name, len(cells), symbol.length)
            memory[symbol.start : symbol.start + symbol.length] = [fill_cell(cell, self.size, name) for cell in cells]
        return replace(self, memory=tuple(memory))


AnyProgram = TypeVar("AnyProgram", SubleqProgram, FleqProgram)


def find_symbol(symbols: Mapping[str, Symbol], name: str) -> Symbol:
    """The cells called `name`, or a ProgramError that names the nearest."""
    if name not in symbols:
        raise ProgramError(
            f"the program has no data called {name!r}{nearest(name, [other for other in symbols if other != ZERO])}"
        )
    if name == ZERO:
        raise ProgramError(f"{ZERO} always holds 0", mend="declare a cell of your own in .data")
    return symbols[name]


def require_length(name: str, found: int, wanted: int) -> None:
    """Refuse a value that does not fill its array exactly."""
    if found != wanted:
        raise ProgramError(f"{name} has {wanted} cells, not {found}", mend=f"give {wanted} values, or edit .data")


def require_word(word: int, word_bits: int, what: str) -> None:
    """Refuse a number outside two's complement of `word_bits`."""
    low, high = -(1 << word_bits - 1), (1 << word_bits - 1) - 1
    if not low <= word <= high:
        needed = max(word.bit_length(), (-word - 1).bit_length()) + 1
        raise ProgramError(
            f"{what} is outside {low} … {high}, the range of {word_bits}-bit words",
            mend=f"use words of {needed} bits (`.word {needed}`, or --word {needed})",
        )


def fill_cell(value: np.ndarray, size: int, name: str) -> Cell:
    """A scalar, vector (as column 0) or matrix, placed at the top left of a zero cell."""
    value = np.asarray(value, dtype=np.float64)
    matrix = value.reshape(-1, 1) if value.ndim < 2 else value
    if matrix.ndim != 2 or max(matrix.shape) > size:
        shape = " x ".join(map(str, value.shape))
        raise ProgramError(f"{name} is {shape}, a cell is {size} x {size}", mend=f"`.cells {max(matrix.shape)}`")
    if not np.isfinite(matrix).all():
        raise ProgramError(f"{name} is not finite", mend="use finite numbers")
    cell = np.zeros((size, size))
    cell[: matrix.shape[0], : matrix.shape[1]] = matrix
    return cell
