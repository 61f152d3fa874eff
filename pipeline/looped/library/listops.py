"""ListOps expressions compiled to SUBLEQ: MIN, MAX, MED (median, rounded down) and SM (sum modulo 10) of digits.

The task is that of arXiv 1804.06028. One expression becomes one straight program in which every temporary cell is
used once, so none needs to be cleared; only SM and the halving in MED loop.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.looped.assembler import assemble
from pipeline.looped.isa import ProgramError, SubleqProgram

Expression = int | tuple[str, list[Any]]
"""A digit, or an operator and its arguments, which are expressions."""
OPERATORS = ("MIN", "MAX", "MED", "SM")


def parse(text: str) -> Expression:
    """`[MAX 2 9 [MIN 4 7] 0]` as nested (operator, arguments).

    Raises:
        ProgramError: brackets that do not match, an unknown operator, something that is no digit.
    """
    words = re.findall(r"\[\s*\w+|\]|[^\s\[\]]+|\[", text)
    tree, rest = _parse(words, text)
    if rest:
        raise ProgramError(f"{text!r} goes on behind its end: {' '.join(rest)}", mend="remove it")
    return tree


def _parse(words: Sequence[str], text: str) -> tuple[Expression, Sequence[str]]:
    first, rest = (words[0], words[1:]) if words else ("", [])
    if re.fullmatch(r"\d", first):
        return int(first), rest
    operator = first.lstrip("[").strip()
    if not first.startswith("[") or operator not in OPERATORS:
        raise ProgramError(f"{first or 'the end'!r} in {text!r}", mend=f"use digits and [{'|'.join(OPERATORS)} … ]")
    arguments = []
    while rest and rest[0] != "]":
        argument, rest = _parse(rest, text)
        arguments.append(argument)
    if not rest or not arguments:
        raise ProgramError(f"{operator} in {text!r} has no arguments or no end", mend="write [MAX 1 2]")
    return (operator, arguments), rest[1:]


def evaluate(tree: Expression) -> int:
    """What an expression means."""
    if isinstance(tree, int):
        return tree
    values = [evaluate(argument) for argument in tree[1]]
    functions = {"MIN": min, "MAX": max, "MED": statistics.median, "SM": lambda terms: sum(terms) % 10}
    return int(functions[tree[0]](values))


def listops(text: str, word_bits: int = 9) -> SubleqProgram:
    """A program whose cell `out` ends up with the value of the expression.

    Raises:
        ProgramError: the text is not an expression.
    """
    emitter = _Emitter()
    emitter.copy(emitter.value(parse(text)), "out")
    data = "\n".join(f"{name}: {value}" for name, value in emitter.cells.items())
    code = "\n".join(emitter.lines)
    return assemble(f".data\n{data}\n.code\n{code}\n", "listops", word_bits)


@dataclass
class _Emitter:
    """Program text in the making; every method leaves its result in a cell and returns the cell's name."""

    cells: dict[str, int] = field(
        default_factory=lambda: {"out": 0, "minus_one": -1, "two": 2, "ten": 10, "minus_ten": -10}
    )
    lines: list[str] = field(default_factory=list)
    labels: int = 0

    def cell(self, value: int = 0) -> str:
        name = f"c{len(self.cells)}"
        self.cells[name] = value
        return name

    def subleq(self, a: str, b: str, target: str = "") -> None:
        self.lines.append(f"subleq {a} {b} {target}")

    def copy(self, source: str, target: str) -> str:
        """target += source, through a fresh cell."""
        minus = self.cell()
        self.subleq(source, minus)
        self.subleq(minus, target)
        return target

    def value(self, tree: Expression) -> str:
        if isinstance(tree, int):
            return self.cell(tree)
        arguments = [self.value(argument) for argument in tree[1]]
        compute = {"MIN": self.smallest, "MAX": self.largest, "MED": self.median, "SM": self.sum_modulo_ten}
        return compute[tree[0]](arguments)

    def largest(self, arguments: Sequence[str]) -> str:
        best = self.copy(arguments[0], self.cell())
        for argument in arguments[1:]:
            above, after = self.copy(argument, self.cell()), self.label()
            self.subleq(best, above, after)
            self.copy(above, best)
            self.lines.append(f"{after}:")
        return best

    def smallest(self, arguments: Sequence[str]) -> str:
        best = self.copy(arguments[0], self.cell())
        for argument in arguments[1:]:
            above, after = self.copy(best, self.cell()), self.label()
            self.subleq(argument, above, after)
            self.subleq(above, best)
            self.lines.append(f"{after}:")
        return best

    def sum_modulo_ten(self, arguments: Sequence[str]) -> str:
        total, minus = self.cell(), self.cell()
        for argument in arguments:
            self.copy(argument, total)
        again, low, done = self.label(), self.label(), self.label()
        self.lines.append(f"{again}:")
        self.subleq("ten", total, low)
        self.lines.append(f"jmp {again}\n{low}:")
        self.subleq(total, minus, done)  # total <= 0, so -total <= 0 only for 0
        self.subleq("minus_ten", total)
        self.lines.append(f"{done}:")
        return total

    def median(self, arguments: Sequence[str]) -> str:
        ordered = [self.copy(argument, self.cell()) for argument in arguments]
        for last in range(len(ordered) - 1, 0, -1):
            for low in range(last):
                self.exchange(ordered[low], ordered[low + 1])
        middle = len(ordered) // 2
        if len(ordered) % 2:
            return ordered[middle]
        return self.half(self.copy(ordered[middle], ordered[middle - 1]))

    def exchange(self, x: str, y: str) -> None:
        above, after = self.copy(x, self.cell()), self.label()
        self.subleq(y, above, after)
        self.subleq(above, x)
        self.copy(above, y)
        self.lines.append(f"{after}:")

    def half(self, total: str) -> str:
        half, minus = self.cell(), self.cell()
        again, low, exact, done = self.label(), self.label(), self.label(), self.label()
        self.lines.append(f"{again}:")
        self.subleq("two", total, low)
        self.subleq("minus_one", half)
        self.lines.append(f"jmp {again}\n{low}:")
        self.subleq(total, minus, exact)
        self.lines.append(f"jmp {done}\n{exact}:")
        self.subleq("minus_one", half)
        self.lines.append(f"{done}:")
        return half

    def label(self) -> str:
        self.labels += 1
        return f"l{self.labels}"
