"""SUBLEQ text into a program.

    .word 8                       ; bits of a word, 16 if not given
    .data
    x:    25                      ; a cell
    list: 3 1 2                   ; an array; its second cell is list+1
    .code
    loop: subleq x list+1 done    ; list[1] -= x; if <= 0 go to done; without a target: the next instruction
          jmp loop
    done: halt

A cell `Z` that holds 0 and a last instruction `HALT` that jumps to itself are added to every program.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pipeline.looped.isa import HALT, ZERO, ProgramError, Subleq, SubleqProgram, Symbol, require_word
from pipeline.looped.source import NAME, Source, Statement, Word, split_sections
from pipeline.params import nearest

DEFAULT_WORD_BITS = 16


def assemble(text: str, name: str = "program", word_bits: int | None = None) -> SubleqProgram:
    """Assemble SUBLEQ text.

    Args:
        text: the program.
        name: what to call it in errors, usually its file.
        word_bits: bits of a word; overrides `.word`.

    Raises:
        AssemblyError: with line, column, the text and how to mend it: an unknown symbol, label, instruction or
            directive, a name declared twice, a value outside the word, an index outside its array, a write to Z.
    """
    source = Source(text, name)
    sections = split_sections(source, ".word")
    bits = word_bits or sections.setting or DEFAULT_WORD_BITS
    if bits < 2:
        raise source.missing(f"words of {bits} bits cannot count", "use `.word 2` or more")
    memory: list[int] = []
    symbols: dict[str, Symbol] = {}
    for statement in sections.data:
        words = [_integer(source, word, bits) for word in statement.words]
        declare(source, statement, symbols, Symbol(len(memory), len(words)))
        memory += words
    symbols[ZERO] = Symbol(len(memory), 1)
    labels, lines = place_labels(source, sections.code)
    code = [_instruction(source, line, index, symbols, labels) for index, line in enumerate(lines)]
    zero = symbols[ZERO].start
    code.append(Subleq(zero, zero, labels[HALT]))
    return SubleqProgram((*memory, 0), tuple(code), bits, symbols, labels)


def declare(source: Source, statement: Statement, symbols: dict[str, Symbol], symbol: Symbol) -> None:
    """Enter one `.data` line into the symbols, unless it is not `name: values` or the name is taken."""
    label = statement.label
    if label is None:
        raise source.error(statement.first, "data without a name", "write `name: value`")
    if symbol.length == 0:
        raise source.error(label, f"{label.text} has no value", "give it at least one, e.g. 0")
    if label.text in symbols or label.text in (ZERO, HALT):
        taken = "declared twice" if label.text in symbols else "a name that every program has already"
        raise source.error(label, f"{label.text} is {taken}", "choose another name")
    symbols[label.text] = symbol


def place_labels(source: Source, code: Iterable[Statement]) -> tuple[dict[str, int], list[Statement]]:
    """Where each label points, HALT included, and the lines that are instructions. A label may stand alone."""
    labels: dict[str, int] = {}
    lines: list[Statement] = []
    for statement in code:
        if statement.label is not None:
            text = statement.label.text
            if text in labels or text == HALT:
                raise source.error(statement.label, f"the label {text} is set twice", "choose another name")
            labels[text] = len(lines)
        if statement.words:
            lines.append(statement)
    labels[HALT] = len(lines)
    return labels, lines


def cell_of(source: Source, word: Word, symbols: Mapping[str, Symbol]) -> int:
    """The memory cell that `name` or `name+index` means."""
    base, plus, offset = word.text.partition("+")
    if base not in symbols or not NAME.match(base):
        raise source.error(word, f"unknown symbol {base!r}", f"declare it in .data{nearest(base, list(symbols))}")
    if plus and not offset.isdecimal():
        raise source.error(word, f"{offset!r} is not an index", f"write {base}+1")
    index = int(offset or 0)
    if index >= symbols[base].length:
        raise source.error(word, f"{base} has {symbols[base].length} cells", "indices count from 0")
    return symbols[base].start + index


def target_of(source: Source, word: Word, labels: Mapping[str, int]) -> int:
    """The instruction that a label means."""
    if word.text not in labels:
        raise source.error(word, f"unknown label {word.text!r}", f"set it in .code{nearest(word.text, list(labels))}")
    return labels[word.text]


def _instruction(
    source: Source, line: Statement, index: int, symbols: Mapping[str, Symbol], labels: Mapping[str, int]
) -> Subleq:
    name, *operands = line.words
    zero = symbols[ZERO].start
    if name.text == "halt" and not operands:
        return Subleq(zero, zero, labels[HALT])
    if name.text == "jmp" and len(operands) == 1:
        return Subleq(zero, zero, target_of(source, operands[0], labels))
    if name.text == "subleq" and len(operands) in (2, 3):
        a, b = (cell_of(source, word, symbols) for word in operands[:2])
        if b == zero and a != zero:
            raise source.error(operands[1], f"{ZERO} must stay 0", "declare a cell of your own in .data")
        return Subleq(a, b, target_of(source, operands[2], labels) if len(operands) == 3 else index + 1)
    forms = {"subleq": "subleq A B [LABEL]", "jmp": "jmp LABEL", "halt": "halt"}
    if name.text in forms:
        raise source.error(name, f"{name.text} takes other operands", f"write `{forms[name.text]}`")
    raise source.error(name, f"unknown instruction {name.text!r}", f"use {', '.join(forms.values())}")


def _integer(source: Source, word: Word, bits: int) -> int:
    try:
        value = int(word.text)
        require_word(value, bits, word.text)
    except ProgramError as error:
        raise source.error(word, error.what, error.mend or "") from None
    except ValueError:
        raise source.error(word, f"{word.text!r} is not an integer", "use decimal integers") from None
    return value
