"""The four layers of the SUBLEQ machine.

Source: arXiv 2301.13196, section 4, which needs nine layers and two heads. Deviations: a read whose key is the
position alone (so the scratch column never competes with what it looks for), subtraction with the sign folded into
the adder (no negation layers), error correction inside the copies, and write and branch in one layer.

Every reading head leaves garbage in BUF of columns that ask for nothing (their query is 0, so they average all
columns). Hence whatever uses BUF is gated, and BUF is cleared everywhere in the same layer.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.looped.gadgets import GATE, FeedForwardBuilder, Form, Gate, combine, increment, select
from pipeline.looped.layout import Layout, Rows
from pipeline.looped.model import Head, head

Layer = tuple[list[Head], FeedForwardBuilder]


def scratch_only(rows: Rows) -> Gate:
    """Open in column 0, where IND is 1."""
    return Gate({rows.one("IND"): GATE}, -GATE)


def outside_scratch(rows: Rows) -> Gate:
    """Open everywhere but in column 0."""
    return Gate({rows.one("IND"): -GATE})


def _read(layout: Layout, scale: float, register: str, source: str, target: Sequence[int], old: Sequence[int]) -> Head:
    """A head by which column 0 reads rows `source` of the column that `register` names into `target`.

    With `old` rows given, the paper's read: column 0 scores its own key as high as the column sought, so the average
    of the old and the new value arrives.
    """
    rows = layout.rows
    scores, moves = [], []
    for position, address in zip(rows["POS"], rows[register], strict=True):
        key: Form = {position: 1.0, address: 1.0} if old else {position: 1.0}
        scores.append(({address: scale}, key))
    for index, (row, result) in enumerate(zip(rows[source], target, strict=True)):
        moves.append(({row: 1.0, old[index]: 1.0} if old else {row: 1.0}, {result: 1.0}))
    return head(layout.width, scores, moves)


def _take(ffn: FeedForwardBuilder, read: Sequence[int], registers: Sequence[int], gate: Gate, tied: bool) -> None:
    """`registers := read`, with error correction; from a tied read the new value is 2 read - old."""
    for row, register in zip(read, registers, strict=True):
        ffn.sign({row: 2.0, register: -1.0} if tied else {row: 1.0}, register, gate)
    ffn.clear(registers)


def fetch(layout: Layout, scale: float, tied: bool) -> Layer:
    """Layer 1: registers RA, RB, RC := the instruction at PC; PCN := PC + 1."""
    rows, ffn = layout.rows, FeedForwardBuilder(layout.width)
    registers = [*rows["RA"], *rows["RB"], *rows["RC"]]
    buffer = rows["BUF"][: len(registers)]
    reader = _read(layout, scale, "PC", "CMD", buffer, registers if tied else ())
    _take(ffn, buffer, registers, scratch_only(rows), tied)
    ffn.clear(rows["BUF"])
    increment(ffn, rows["PC"], rows["PCN"], rows.one("IND"))
    ffn.clear(rows["PCN"])
    return [reader], ffn


def load(layout: Layout, scale: float, tied: bool) -> Layer:
    """Layer 2: A := mem[RA], B := mem[RB]."""
    rows, ffn, word = layout.rows, FeedForwardBuilder(layout.width), layout.sizes.word_bits
    heads = []
    for index, (address, register) in enumerate((("RA", "A"), ("RB", "B"))):
        buffer = rows["BUF"][index * word : (index + 1) * word]
        heads.append(_read(layout, scale, address, "MEM", buffer, rows[register] if tied else ()))
        _take(ffn, buffer, rows[register], scratch_only(rows), tied)
    ffn.clear(rows["BUF"])
    return heads, ffn


def subtract(layout: Layout, chunks: Sequence[range]) -> list[Layer]:
    """Layer 3, one a chunk of bits: B := B - A modulo 2^N, and F := the result is negative or zero.

    With D_i = the difference of the lowest i bits, an integer, bit i of B - A is
    [D_i >= -2^(i-1)] - [D_i >= 0] + [D_i >= 2^(i-1)]; the result is 0 exactly if all differences are. From one chunk
    to the next go a borrow CY and a mark NZ that some lower bit differed.
    """
    layers = []
    for chunk in chunks:
        ffn = FeedForwardBuilder(layout.width)
        difference = _difference(ffn, layout.rows, chunk, first=chunk == chunks[0])
        _finish_chunk(ffn, layout.rows, difference, chunks, last=chunk == chunks[-1])
        ffn.clear([*(layout.rows["A"][i] for i in chunk), *(layout.rows["B"][i] for i in chunk)])
        layers.append(([], ffn))
    return layers


def _difference(ffn: FeedForwardBuilder, rows: Rows, chunk: range, first: bool) -> Form:
    """Write the chunk's bits of the difference into B; return the form of the whole chunk's difference."""
    one, low = rows.one("IND"), chunk.start
    borrow: Form = {} if first else {rows.one("CY"): -1.0}
    total: dict[int, float] = {}
    for i in chunk:
        weight = 2.0 ** (i - low - 1)
        total = combine((total, 1.0), ({rows["B"][i]: weight, rows["A"][i]: -weight}, 1.0))
        ffn.bit(combine((total, 1.0), (borrow, 1.0)), (-2 * weight, 0.0, 2 * weight), rows["B"][i], one)
    return combine((total, 1.0), (borrow, 1.0))


def _finish_chunk(ffn: FeedForwardBuilder, rows: Rows, difference: Form, chunks: Sequence[range], last: bool) -> None:
    one = rows.one("IND")
    apart = difference  # an integer that is 0 exactly if the words agree so far
    if len(chunks) > 1:
        apart = combine((difference, 2.0), ({rows.one("NZ"): 1.0}, 1.0))
        ffn.clear([rows.one("CY"), rows.one("NZ")])
    if last:
        flag = rows.one("F")
        half = 2.0 ** (len(chunks[-1]) - 1)
        for threshold, sign in ((-half, 1.0), (0.0, -1.0), (half, 1.0)):  # the sign bit of the result
            ffn.at_least(difference, threshold, {flag: sign}, one)
        for threshold, sign in ((0.0, 1.0), (1.0, -1.0)):
            ffn.at_least(apart, threshold, {flag: sign}, one)
    else:
        for row, form, thresholds in (
            (rows.one("CY"), difference, ((0.0, -1.0),)),
            (rows.one("NZ"), apart, ((0.0, -1.0), (1.0, 1.0))),
        ):
            ffn.constant(1.0, row, one)
            for threshold, sign in thresholds:
                ffn.at_least(form, threshold, {row: sign}, one)


def write_and_branch(layout: Layout, scale: float) -> Layer:
    """Layer 4: mem[RB] := B, and PC := F ? RC : PCN.

    Column b scores the scratch column L L/(L-1) and itself L; any other column scores itself L and the scratch column
    at most (L-2) L/(L-1). Both gaps are L/(L-1) > 1, so there is no tie.
    """
    rows, ffn, one = layout.rows, FeedForwardBuilder(layout.width), layout.rows.one("IND")
    boost = 1 + 1 / (len(rows["POS"]) - 1)
    scores = [
        ({position: scale}, {position: 1.0, address: boost})
        for position, address in zip(rows["POS"], rows["RB"], strict=True)
    ]
    moves = [
        ({old: 1.0, new: 1.0}, {buffer: 1.0})
        for old, new, buffer in zip(rows["MEM"], rows["B"], rows["BUF"], strict=False)
    ]
    for memory, buffer in zip(rows["MEM"], rows["BUF"], strict=False):
        ffn.stair({buffer: 1.0}, memory, outside_scratch(rows))
    select(ffn, rows.one("F"), rows["RC"], rows["PCN"], rows["PC"], one)
    ffn.clear([*rows["MEM"], *rows["BUF"], *rows["PC"], *rows["B"], rows.one("F")])
    return [head(layout.width, scores, moves)], ffn
