"""The seven layers of the FLEQ machine: fetch, load, functions, write in two, flag, branch.

Source: arXiv 2301.13196, section 5, whose unified network needs 9 layers plus those of the deepest function block.
Deviations: all blocks share one layer, the opcode travels as a one-hot complement, and the flag is tested after the
write, as in SUBLEQ.
"""

from __future__ import annotations

from pipeline.looped.fleq_blocks import SHUT, FunctionWeights, functions
from pipeline.looped.fleq_layout import FleqLayout
from pipeline.looped.gadgets import GATE, FeedForwardBuilder, Form, Gate, increment, select
from pipeline.looped.layout import Rows
from pipeline.looped.model import Head, head
from pipeline.looped.subleq_layers import Layer


def fleq_layers(layout: FleqLayout, scale: float, weights: FunctionWeights) -> list[Layer]:
    """All layers, first to last; `scale` is lambda."""
    return [
        fetch(layout, scale),
        load(layout, scale),
        functions(layout, scale, weights),
        write(layout, scale),
        settle(layout),
        flag(layout, scale),
        branch(layout),
    ]


def fetch(layout: FleqLayout, scale: float) -> Layer:
    """Layer 1: registers := the instruction at PC; PCN := PC + 1."""
    rows, ffn = layout.rows, FeedForwardBuilder(layout.width)
    fields = range(rows["FA"].start, rows["FO"].stop)
    scores = [({bit: scale}, {position: 1.0}) for bit, position in zip(rows["PC"], rows["IPOS"], strict=True)]
    moves = [({field: 1.0}, {buffer: 1.0}) for field, buffer in zip(fields, rows["BUF"], strict=True)]
    registers = [row for name in ("RA", "RB", "RC", "RF", "RP") for row in rows[name]]
    scratch = Gate({rows.one("NIND"): -GATE})
    for buffer, register in zip(rows["BUF"], registers, strict=False):
        ffn.sign({buffer: 1.0}, register, scratch)
    for buffer, operation in zip(rows["BUF"][len(registers) :], rows["NO"], strict=True):
        ffn.gated({buffer: 3.0}, {operation: 1.0}, scratch, constant=-1.0)
        ffn.gated({buffer: 3.0}, {operation: -1.0}, scratch, constant=-2.0)
    ffn.clear([*registers, *rows["NO"], *rows["BUF"]])
    increment(ffn, rows["PC"], rows["PCN"], rows.one("IND"))
    ffn.clear(rows["PCN"])
    return [head(layout.width, scores, moves)], ffn


def _cell_scores(rows: Rows, scale: float, register: str) -> list[tuple[Form, Form]]:
    """Scores by which scratch column j finds column j of the cell that a register names; the gap is 2 lambda."""
    numbers = [({bit: scale}, {position: 1.0}) for bit, position in zip(rows[register], rows["MPOS"], strict=True)]
    offsets = [({own: 2 * scale}, {offset: 1.0}) for own, offset in zip(rows["SOFF"], rows["MOFF"], strict=True)]
    return [*numbers, *offsets]


def _corner_scores(rows: Rows, scale: float, register: str) -> list[tuple[Form, Form]]:
    """Scores by which every scratch column finds the first column of the cell that a register names."""
    numbers = [({bit: scale}, {position: 1.0}) for bit, position in zip(rows[register], rows["MPOS"], strict=True)]
    return [*numbers, ({rows.one("IND"): 2 * scale}, {rows["MOFF"][0]: 1.0})]


def load(layout: FleqLayout, scale: float) -> Layer:
    """Layer 2: A := mem[RA], B := mem[RB], and PTR := element [0, 0] of mem[RA], in every scratch column.

    The softmax is exactly one-hot, so real numbers arrive bit for bit.
    """
    rows, ffn = layout.rows, FeedForwardBuilder(layout.width)
    heads: list[Head] = []
    for address, register in (("RA", "A"), ("RB", "B")):
        moves = [({value: 1.0}, {row: 1.0}) for value, row in zip(rows["VAL"], rows[register], strict=True)]
        heads.append(head(layout.width, _cell_scores(rows, scale, address), moves))
    corner = [({rows["VAL"][0]: 1.0}, {rows.one("PTR"): 1.0})]
    heads.append(head(layout.width, _corner_scores(rows, scale, "RA"), corner))
    elsewhere = Gate({rows.one("IND"): -SHUT})
    for row in (*rows["A"], *rows["B"], rows.one("PTR")):
        ffn.add({row: 1.0}, {row: -1.0}, elsewhere)
    return heads, ffn


def write(layout: FleqLayout, scale: float) -> Layer:
    """Layer 4: WB := what belongs into each memory column, from scratch for cell RC, else from itself; VAL := 0."""
    rows, ffn = layout.rows, FeedForwardBuilder(layout.width)
    boost = 1 + 1 / len(rows["MPOS"])
    scores: list[tuple[Form, Form]] = [
        ({position: scale}, {position: 1.0, address: boost})
        for position, address in zip(rows["MPOS"], rows["RC"], strict=True)
    ]
    for offset, own in zip(rows["MOFF"], rows["SOFF"], strict=True):
        scores.append(({offset: 2 * scale}, {offset: 1.0, own: 1.0}))
    moves = [
        ({value: 1.0, result: 1.0}, {buffer: 1.0})
        for value, result, buffer in zip(rows["VAL"], rows["OUT"], rows["WB"], strict=True)
    ]
    ffn.clear([*rows["VAL"], *rows["OUT"]])
    return [head(layout.width, scores, moves)], ffn


def settle(layout: FleqLayout) -> Layer:
    """Layer 5: VAL := WB in memory. A layer of its own, so that the residual sum is 0 + WB and loses nothing."""
    rows, ffn = layout.rows, FeedForwardBuilder(layout.width)
    for buffer, value in zip(rows["WB"], rows["VAL"], strict=True):
        ffn.add({buffer: 1.0}, {value: 1.0}, Gate({rows.one("NMEM"): -SHUT}))
    ffn.clear(rows["WB"])
    return [], ffn


def flag(layout: FleqLayout, scale: float) -> Layer:
    """Layer 6: F := [element [0, 0] of mem[RF] <= 0], for integers; between 0 and 1/2 it interpolates."""
    rows, ffn = layout.rows, FeedForwardBuilder(layout.width)
    value, result = rows.one("FV"), rows.one("F")
    reader = head(layout.width, _corner_scores(rows, scale, "RF"), [({rows["VAL"][0]: 1.0}, {value: 1.0})])
    scratch = Gate({rows.one("NIND"): -SHUT})
    ffn.constant(1.0, result, rows.one("IND"))
    ffn.gated({value: 2.0}, {result: -1.0}, scratch)
    ffn.gated({value: 2.0}, {result: 1.0}, scratch, constant=-1.0)
    ffn.clear([value])
    return [reader], ffn


def branch(layout: FleqLayout) -> Layer:
    """Layer 7: PC := F ? RP : PCN."""
    rows, ffn = layout.rows, FeedForwardBuilder(layout.width)
    select(ffn, rows.one("F"), rows["RP"], rows["PCN"], rows["PC"], rows.one("IND"))
    ffn.clear([*rows["PC"], rows.one("F")])
    return [], ffn
