"""FLEQ's function blocks: all compute at once on the loaded operands, and the opcode lets one of them through.

A matrix product is read off the softmax itself (arXiv 2301.13196, section 5 and appendix, "matrix multiplication by
linearizing the softmax"). Deviation: two heads with opposite signs have a sinh as their difference, without constant
and quadratic term; two more at twice the scale cancel the cubic one: (8 sinh(cx) - sinh(2cx)) / 6c = x - c^4 x^5 / 30.
What remains beside that is rounding / c, so that c may be larger than with two heads, and the result more accurate:
1e-10 in place of 2e-9 in float64, 1e-4 in place of 2e-4 in float32, for entries up to 5.8, at the price of two heads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pipeline.looped.fleq_layout import FleqLayout
from pipeline.looped.gadgets import FeedForwardBuilder, Form, Gate
from pipeline.looped.isa import OPERATIONS
from pipeline.looped.layout import Rows
from pipeline.looped.model import Head, head
from pipeline.looped.subleq_layers import Layer

SHUT = 2.0**80
"""Weight of a gate on an exact 0 or 1: above whatever a block may compute while another one is wanted. Most is what
the product's heads read when their scores saturate, 2^59 in float64."""
MASK = 2.0**20
"""Weight of the mask in `gate`, as large as a value may be; far below SHUT, or a negative operand would open it."""


@dataclass(frozen=True)
class FunctionWeights:
    """What decides the blocks' accuracy.

    Attributes:
        product_scale: c, by which scores of the matrix product are multiplied; small keeps exp linear.
        sink: C, the score of the sink column, which keeps the softmax's denominator constant.
        slope: of `step`: values in (0, 1 / slope) are neither 0 nor 1. A power of two, so that products are exact.
    """

    product_scale: float
    sink: float
    slope: float


def functions(layout: FleqLayout, scale: float, weights: FunctionWeights) -> Layer:
    """Layer 3: OUT := f(A, B) in the scratch columns for the operation whose row in NO is 0; operands cleared."""
    rows, ffn = layout.rows, FeedForwardBuilder(layout.width)
    heads = [
        *(_product_head(layout, weights, *term) for term in ((1.0, 8.0), (-1.0, -8.0), (2.0, -1.0), (-2.0, 1.0))),
        *(_transpose_head(layout, scale, column) for column in range(layout.sizes.cell)),
        _indirect_head(layout, scale),
    ]
    gates = {
        name: Gate({rows.one("NIND"): -SHUT, row: -SHUT}) for name, row in zip(OPERATIONS, rows["NO"], strict=True)
    }
    _elementwise(ffn, rows, gates, weights.slope)
    _from_attention(ffn, rows, gates, layout.sizes.cell)
    ffn.clear(row for name in ("A", "B", "MB", "LB", "TB", "PTR") for row in rows[name])
    return heads, ffn


def _elementwise(ffn: FeedForwardBuilder, rows: Rows, gates: dict[str, Gate], slope: float) -> None:
    """The blocks that are feed-forward only."""
    one = rows.one("IND")
    for a, b, out in zip(rows["A"], rows["B"], rows["OUT"], strict=True):
        ffn.add({a: 1.0}, {out: 1.0}, gates["mov"])
        ffn.add({a: 1.0, b: 1.0}, {out: 1.0}, gates["add"])
        ffn.add({a: 1.0, b: -1.0}, {out: 1.0}, gates["sub"])
        ffn.gated({a: 1.0}, {out: 1.0}, gates["relu"])
        ffn.add({a: 1.0}, {out: 1.0}, gates["gate"] + Gate({b: -MASK}))
        ffn.gated({one: 1.0}, {out: 1.0}, gates["nstep"])
        for name, sign in (("step", 1.0), ("nstep", -1.0)):
            ffn.gated({a: slope}, {out: sign}, gates[name])
            ffn.gated({a: slope}, {out: -sign}, gates[name], constant=-1.0)


def _from_attention(ffn: FeedForwardBuilder, rows: Rows, gates: dict[str, Gate], cell: int) -> None:
    """Let through what the heads of this layer read."""
    for i, out in enumerate(rows["OUT"]):
        ffn.add({rows["MB"][i]: 1.0}, {out: 1.0}, gates["mm"])
        ffn.add({rows["LB"][i]: 1.0}, {out: 1.0}, gates["load"])
        for k, elsewhere in enumerate(rows["NSOFF"]):
            ffn.add({rows["TB"][i * cell + k]: 1.0}, {out: 1.0}, gates["tr"] + Gate({elsewhere: -SHUT}))


def _product_head(layout: FleqLayout, weights: FunctionWeights, multiple: float, share: float) -> Head:
    """One term of MB := A^T B: scratch column j scores column i with multiple c (a_i . b_j), and the sink with C.

    The weight on column i is exp(multiple c x) / Den with Den = e^C + n - 1 up to O(c), hence the factor Den / 12c.
    Only scratch columns have a value; the weights e^0 of all others would add a constant.
    """
    rows, scale = layout.rows, multiple * weights.product_scale
    factor = share * (math.exp(weights.sink) + layout.sizes.columns - 1) / (12 * weights.product_scale)
    scores: list[tuple[Form, Form]] = [({b: scale}, {a: 1.0}) for a, b in zip(rows["A"], rows["B"], strict=True)]
    scores.append(({rows.one("IND"): weights.sink}, {rows.one("SINK"): 1.0}))
    moves = [({own: 1.0}, {result: factor}) for own, result in zip(rows["SOFF"], rows["MB"], strict=True)]
    return head(layout.width, scores, moves)


def _transpose_head(layout: FleqLayout, scale: float, column: int) -> Head:
    """TB[column, :] := A of scratch column `column`, in every scratch column."""
    rows, cell = layout.rows, layout.sizes.cell
    scores = [({rows.one("IND"): scale}, {rows["SOFF"][column]: 1.0})]
    target = rows["TB"][column * cell : (column + 1) * cell]
    return head(layout.width, scores, [({a: 1.0}, {row: 1.0}) for a, row in zip(rows["A"], target, strict=True)])


def _indirect_head(layout: FleqLayout, scale: float) -> Head:
    """LB := the cell whose number is PTR, by the score lambda (2 v j - j^2) = lambda (v^2 - (v - j)^2).

    Its gap is lambda between neighbouring cells. A number that is no cell finds the nearest one.
    """
    rows = layout.rows
    scores: list[tuple[Form, Form]] = [
        ({rows.one("PTR"): 2 * scale}, {rows.one("MNUM"): 1.0}),
        ({rows.one("IND"): -scale}, {rows.one("MSQ"): 1.0}),
    ]
    for own, offset in zip(rows["SOFF"], rows["MOFF"], strict=True):
        scores.append(({own: 2 * scale}, {offset: 1.0}))
    return head(layout.width, scores, [({v: 1.0}, {row: 1.0}) for v, row in zip(rows["VAL"], rows["LB"], strict=True)])
