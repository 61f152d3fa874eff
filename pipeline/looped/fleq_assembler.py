"""FLEQ text into a program.

    .cells 4                              ; every cell is a 4 x 4 matrix
    .data
    k: 3                                  ; a scalar, at [0, 0]
    v: 1 2 3 4                            ; a column vector, in column 0
    m: 1 2 / 3 4                          ; a matrix, rows apart by /
    list: [1] [2] [3]                     ; an array of cells; its second is list+1
    .code
    loop: mm m v v                        ; v := m^T v
          sub k one k  if k <= 0 goto done
          jmp loop
    done: halt

Operations: mov add sub relu step nstep gate mm tr load (`oracle.apply` defines them); the last operand is the result.
`load pointer result` reads the cell whose number pointer holds; the number of a cell is written `&name` in `.data`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pipeline.looped.assembler import cell_of, declare, place_labels, target_of
from pipeline.looped.isa import HALT, OPERATIONS, UNARY, ZERO, Cell, Fleq, FleqProgram, ProgramError, Symbol, fill_cell
from pipeline.looped.source import Source, Statement, Word, split_sections

DEFAULT_CELL_SIZE = 4


def assemble_fleq(text: str, name: str = "program") -> FleqProgram:
    """Assemble FLEQ text.

    Raises:
        AssemblyError: with line, column, the text and how to mend it: an unknown symbol, label, operation or
            directive, a name declared twice, a value larger than a cell, an index outside its array, a write to Z.
    """
    source = Source(text, name)
    sections = split_sections(source, ".cells")
    size = sections.setting or DEFAULT_CELL_SIZE
    symbols: dict[str, Symbol] = {}
    groups = []
    for statement in sections.data:
        cells = _split_cells(source, statement)
        start = sum(map(len, groups))
        declare(source, statement, symbols, Symbol(start, len(cells)))
        groups.append(cells)
    memory = [_cell(source, words, size, symbols) for cells in groups for words in cells]
    symbols[ZERO] = Symbol(len(memory), 1)
    memory.append(np.zeros((size, size)))
    labels, lines = place_labels(source, sections.code)
    reader = _LineReader(source, symbols, labels)
    code = [reader.instruction(line, index) for index, line in enumerate(lines)]
    code.append(reader.jump(labels[HALT]))
    return FleqProgram(tuple(memory), tuple(code), size, symbols, labels)


def _split_cells(source: Source, statement: Statement) -> list[list[Word]]:
    """The words of each cell of a data line: one cell, or several in brackets."""
    if not any(word.text in "[]" for word in statement.words):
        return [list(statement.words)] if statement.words else []
    cells: list[list[Word]] = []
    inside = False
    for word in statement.words:
        if (word.text == "[") == inside:  # a bracket that opens inside, or anything else outside
            if inside or word.text == "]":
                raise source.error(word, "brackets that do not match", "write `name: [1 2] [3 4]`")
            raise source.error(word, "a value outside brackets", "write `name: [1 2] [3 4]`")
        if word.text == "[":
            cells.append([])
        elif word.text != "]":
            cells[-1].append(word)
        inside = word.text != "]"
    if inside or not all(cells):
        raise source.error(statement.words[-1], "a bracket without its end or without a value", "write `name: [1] [2]`")
    return cells


def _cell(source: Source, words: list[Word], size: int, symbols: Mapping[str, Symbol]) -> Cell:
    rows: list[list[float]] = [[]]
    for word in words:
        if word.text == "/":
            rows.append([])
        elif word.text.startswith("&"):
            name = Word(word.text[1:], word.line, word.column + 1)
            rows[-1].append(float(cell_of(source, name, symbols)))
        else:
            rows[-1].append(_number(source, word))
    if len({len(row) for row in rows}) != 1:
        raise source.error(words[0], "rows of different lengths", "fill them up with 0")
    try:
        return fill_cell(np.array(rows if len(rows) > 1 else rows[0]), size, "the value")
    except ProgramError as error:
        raise source.error(words[0], error.what, error.mend or "") from None


def _number(source: Source, word: Word) -> float:
    try:
        return float(word.text)
    except ValueError:
        raise source.error(word, f"{word.text!r} is not a number", "use decimal numbers, or &name") from None


@dataclass(frozen=True)
class _LineReader:
    source: Source
    symbols: Mapping[str, Symbol]
    labels: Mapping[str, int]

    def jump(self, target: int) -> Fleq:
        zero = self.symbols[ZERO].start
        return Fleq("mov", zero, zero, zero, zero, target)

    def instruction(self, line: Statement, index: int) -> Fleq:
        name, *rest = line.words
        if name.text == "halt" and not rest:
            return self.jump(self.labels[HALT])
        if name.text == "jmp" and len(rest) == 1:
            return self.jump(target_of(self.source, rest[0], self.labels))
        if name.text not in OPERATIONS:
            forms = f"{', '.join(OPERATIONS)}, jmp LABEL, halt"
            raise self.source.error(name, f"unknown operation {name.text!r}", f"use one of {forms}")
        count = 2 if name.text in UNARY else 3
        operands, condition = rest[:count], rest[count:]
        if len(operands) < count or (condition and [w.text for w in condition[:1]] != ["if"]):
            form = "A RESULT" if count == 2 else "A B RESULT"
            raise self.source.error(name, f"{name.text} takes {count} operands", f"write `{name.text} {form}`")
        cells = [cell_of(self.source, word, self.symbols) for word in operands]
        zero = self.symbols[ZERO].start
        if cells[-1] == zero:
            raise self.source.error(operands[-1], f"{ZERO} must stay 0", "declare a cell of your own in .data")
        flag, target = self._condition(condition, index)
        return Fleq(name.text, cells[0], zero if count == 2 else cells[1], cells[-1], flag, target)

    def _condition(self, words: list[Word], index: int) -> tuple[int, int]:
        """`if FLAG <= 0 goto LABEL`, or nothing: on to the next instruction."""
        if not words:
            return self.symbols[ZERO].start, index + 1
        shape = [word.text for word in words[:1] + words[2:5]]
        if len(words) != 6 or shape != ["if", "<=", "0", "goto"]:
            raise self.source.error(words[0], "the condition is not complete", "write `if FLAG <= 0 goto LABEL`")
        return cell_of(self.source, words[1], self.symbols), target_of(self.source, words[5], self.labels)
