"""Program text: what it becomes, and what every mistake is told."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.looped.assembler import assemble
from pipeline.looped.fleq_assembler import assemble_fleq
from pipeline.looped.isa import Fleq, ProgramError, Subleq
from pipeline.looped.source import AssemblyError

GOOD = """
; a comment
.word 8
.data
x: 25                 ; a cell
list: 3 -1 2
.code
loop:
      subleq x list+2 done
      subleq x x
      jmp loop
done: halt
"""


def test_labels_arrays_comments_and_defaults() -> None:
    program = assemble(GOOD)
    assert program.memory == (25, 3, -1, 2, 0)
    assert program.word_bits == 8
    assert program.code == (Subleq(0, 3, 3), Subleq(0, 0, 2), Subleq(4, 4, 0), Subleq(4, 4, 4), Subleq(4, 4, 4))
    assert program.halt == 4
    assert program.values(program.memory, "list") == [3, -1, 2]


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        (".data\nx: 1\n.code\nsubleq x acc\n", "4:10", "unknown symbol 'acc'"),
        (".data\ncount: 1\n.code\nsubleq count coun\n", "4:14", "did you mean 'count'"),
        (".data\nx: 1\n.code\n  subleq x x there\n", "4:14", "unknown label 'there'"),
        (".data\nx: 1\n.code\nsubleq x x+1\n", "4:10", "x has 1 cells"),
        (".data\nx: 1\n.code\nsubleq x x+y\n", "4:10", "'y' is not an index"),
        (".data\nx: 1\n.code\nsubleq x Z\n", "4:10", "Z must stay 0"),
        (".data\nx: 1\n.code\nsubleq x\n", "4:1", "subleq takes other operands"),
        (".data\nx: 1\n.code\nadd x x\n", "4:1", "unknown instruction 'add'"),
        (".word 8\n.data\nx: 1 128\n.code\nhalt\n", "3:6", "128 is outside -128 … 127"),
        (".data\nx: one\n.code\nhalt\n", "2:4", "'one' is not an integer"),
        (".data\nx:\n.code\nhalt\n", "2:1", "x has no value"),
        (".data\n7\n.code\nhalt\n", "2:1", "data without a name"),
        (".data\nx: 1\nx: 2\n.code\nhalt\n", "3:1", "x is declared twice"),
        (".data\nZ: 1\n.code\nhalt\n", "2:1", "Z is a name that every program has"),
        (".data\n1x: 1\n.code\nhalt\n", "2:1", "'1x' is not a name"),
        (".code\na: halt\na: halt\n", "3:1", "the label a is set twice"),
        (".code\nHALT: halt\n", "2:1", "the label HALT is set twice"),
        ("halt\n", "1:1", "a statement before any section"),
        (".text\nhalt\n", "1:1", "unknown directive .text"),
        (".word eight\n.code\nhalt\n", "1:7", ".word needs one positive integer"),
        (".code now\nhalt\n", "1:7", "a section's name stands alone"),
        (".data\nx: 1\n", "2:5", "the program has no code"),
    ],
)
def test_every_mistake_names_its_line_and_column(text: str, where: str, what: str) -> None:
    with pytest.raises(AssemblyError) as caught:
        assemble(text, "prog.sub")
    message = str(caught.value)
    assert message.startswith(f"prog.sub:{where}: ")
    assert what in message
    assert text.splitlines()[int(where.split(":")[0]) - 1] in message, "the line itself is shown"
    assert caught.value.mend


def test_caret_stands_under_the_word() -> None:
    with pytest.raises(AssemblyError) as caught:
        assemble(".data\nx: 1\n.code\n  subleq x wrong\n")
    _, shown, caret, _ = str(caught.value).splitlines()
    assert shown[caret.index("^") : caret.rindex("^") + 1] == "wrong"


def test_new_data_is_checked() -> None:
    program = assemble(GOOD)
    assert program.with_values({"x": [-128]}).memory[0] == -128
    with pytest.raises(ProgramError, match=r"x = 128 is outside -128 … 127(.|\n)*\.word 9"):
        program.with_values({"x": [128]})
    with pytest.raises(ProgramError, match="list has 3 cells, not 2"):
        program.with_values({"list": [1, 2]})
    with pytest.raises(ProgramError, match="no data called 'lsit'; did you mean 'list'"):
        program.with_values({"lsit": [1, 2, 3]})
    with pytest.raises(ProgramError, match="Z always holds 0"):
        program.with_values({"Z": [1]})


def test_fleq_text_with_cells_vectors_pointers_and_conditions() -> None:
    program = assemble_fleq(
        """.cells 2
        .data
        m: 1 2 / 3 4
        v: 5 6
        list: [7] [8 9] [1 0 / 0 1]
        p: &list+1
        .code
        go: mm m v v  if p <= 0 goto done
            tr m m
            jmp go
        done: halt
        """
    )
    assert [cell.tolist() for cell in program.memory[:4]] == [
        [[1, 2], [3, 4]],
        [[5, 0], [6, 0]],
        [[7, 0], [0, 0]],
        [[8, 0], [9, 0]],
    ]
    assert program.memory[5][0, 0] == 3
    assert program.code[0] == Fleq("mm", 0, 1, 1, 5, 3)
    assert program.code[1] == Fleq("tr", 0, 6, 0, 6, 2)
    assert program.code[2].target == 0
    assert program.halt == 4


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        (".cells 2\n.data\nv: 1 2 3\n.code\nhalt\n", "3:4", "a cell is 2 x 2"),
        (".data\nv: 1 two\n.code\nhalt\n", "2:6", "'two' is not a number"),
        (".data\nv: 1 2 / 3\n.code\nhalt\n", "2:4", "rows of different lengths"),
        (".data\nv: [1] 2 [3]\n.code\nhalt\n", "2:8", "a value outside brackets"),
        (".data\nv: [1 [2]\n.code\nhalt\n", "2:7", "brackets that do not match"),
        (".data\nv: [1] ]\n.code\nhalt\n", "2:8", "brackets that do not match"),
        (".data\nv: [1] [2\n.code\nhalt\n", "2:9", "a bracket without its end"),
        (".data\nv: &w\n.code\nhalt\n", "2:5", "unknown symbol 'w'"),
        (".data\nv: nan\n.code\nhalt\n", "2:4", "not finite"),
        (".data\nv: 1\n.code\nmul v v v\n", "4:1", "unknown operation 'mul'"),
        (".data\nv: 1\n.code\nadd v v\n", "4:1", "add takes 3 operands"),
        (".data\nv: 1\n.code\ntr v v v\n", "4:1", "tr takes 2 operands"),
        (".data\nv: 1\n.code\ntr v Z\n", "4:6", "Z must stay 0"),
        (".data\nv: 1\n.code\ntr v v if v < 0 goto HALT\n", "4:8", "the condition is not complete"),
        (".data\nv: 1\n.code\ntr v v if v <= 0 goto END\n", "4:23", "unknown label 'END'"),
    ],
)
def test_every_fleq_mistake_names_its_line_and_column(text: str, where: str, what: str) -> None:
    with pytest.raises(AssemblyError) as caught:
        assemble_fleq(text, "prog.fleq")
    assert str(caught.value).startswith(f"prog.fleq:{where}: ")
    assert what in str(caught.value)
    assert caught.value.mend


def test_new_cells_are_checked() -> None:
    program = assemble_fleq(".cells 2\n.data\nv: 1\n.code\nhalt\n")
    assert program.with_values({"v": [np.array([3.0, 4.0])]}).memory[0].tolist() == [[3, 0], [4, 0]]
    with pytest.raises(ProgramError, match=r"v is 3, a cell is 2 x 2"):
        program.with_values({"v": [np.ones(3)]})
    with pytest.raises(ProgramError, match="v has 1 cells, not 2"):
        program.with_values({"v": [np.ones(1), np.ones(1)]})
