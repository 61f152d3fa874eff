"""ReLU gadgets: small exact functions out of hidden units, collected into one feed-forward layer.

Weights are built in float64 and cast once. A *form* is a linear combination of rows. A *gate* is a form that is 0
where the gadget works and at most -GATE elsewhere, so that no unit fires there. Constants are written as weights on
an indicator row, so that every column shares one bias (here: no bias but the gates'), as a standard layer demands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

Form = Mapping[int, float]

GATE = 8.0
"""More than any pre-activation of `sign` and `stair` on entries within [-1, 1], also when a read returns a mixture."""


@dataclass(frozen=True)
class Gate:
    """Where a gadget is silent: `rows` times their weights, plus `bias`, is 0 where it works and <= -GATE elsewhere."""

    rows: Form
    bias: float = 0.0

    def __add__(self, other: Gate) -> Gate:
        """Silent where either is."""
        return Gate(combine((self.rows, 1.0), (other.rows, 1.0)), self.bias + other.bias)


OPEN = Gate({})


def combine(*terms: tuple[Form, float]) -> dict[int, float]:
    """The sum of forms, each times its factor."""
    total: dict[int, float] = {}
    for form, factor in terms:
        for row, weight in form.items():
            total[row] = total.get(row, 0.0) + factor * weight
    return total


class FeedForwardBuilder:
    """Collects hidden units `relu(w1 x + b1)` and what each adds to the residual stream through `w2`."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._inputs: list[Form] = []
        self._biases: list[float] = []
        self._outputs: list[Form] = []

    def unit(self, inputs: Form, outputs: Form, bias: float = 0.0) -> None:
        """One hidden unit."""
        self._inputs.append(inputs)
        self._biases.append(bias)
        self._outputs.append(outputs)

    def gated(self, form: Form, outputs: Form, gate: Gate = OPEN, constant: float = 0.0) -> None:
        """One hidden unit `relu(form + constant)`, silent where the gate is shut."""
        self.unit(combine((form, 1.0), (gate.rows, 1.0)), outputs, constant + gate.bias)

    def clear(self, rows: Iterable[int]) -> None:
        """`row := 0`, exact in floating point: r - relu(r) + relu(-r)."""
        for row in rows:
            self.unit({row: 1.0}, {row: -1.0})
            self.unit({row: -1.0}, {row: 1.0})

    def add(self, form: Form, outputs: Form, gate: Gate = OPEN) -> None:
        """`output += weight * form`, for both signs of the form."""
        self.gated(form, outputs, gate)
        self.gated(combine((form, -1.0)), combine((outputs, -1.0)), gate)

    def sign(self, form: Form, row: int, gate: Gate = OPEN) -> None:
        """`row += clamp(2 form, -1, 1)`: bits with errors up to 1/2 become exactly -1 and +1."""
        for side in (1.0, -1.0):
            self.gated(combine((form, 2.0 * side)), {row: side}, gate)
            self.gated(combine((form, 2.0 * side)), {row: -side}, gate, constant=-1.0)

    def stair(self, form: Form, row: int, gate: Gate = OPEN) -> None:
        """`row += ` the nearest of -1, 0, +1: exact for |form| < 1/4 and |form| > 1/2.

        The specification has slope 3; slope 4 keeps the products exact, so that the result has no rounding at all.
        """
        for side in (1.0, -1.0):
            self.gated(combine((form, 4.0 * side)), {row: side}, gate, constant=-1.0)
            self.gated(combine((form, 4.0 * side)), {row: -side}, gate, constant=-2.0)

    def at_least(self, form: Form, threshold: float, outputs: Form, one: int) -> None:
        """`output += weight * [form >= threshold]` for an integer form and threshold; tolerates errors up to 1/4.

        `one` is the row that is 1 in the columns where this works and 0 elsewhere, where the form must be 0 too.
        """
        for offset, side in ((1.5, 1.0), (0.5, -1.0)):
            inputs = combine((form, 2.0), ({one: offset - 2.0 * threshold}, 1.0))
            self.unit(inputs, combine((outputs, side)))

    def constant(self, value: float, row: int, one: int) -> None:
        """`row += value` where the row `one` is 1."""
        self.unit({one: 1.0}, {row: value})

    def bit(self, form: Form, thresholds: Sequence[float], row: int, one: int) -> None:
        """`row += 2 b - 1` with b = [form >= t0] - [form >= t1] + [form >= t2]: one bit of a sum, as -1 or +1."""
        for threshold, sign in zip(thresholds, (1.0, -1.0, 1.0), strict=True):
            self.at_least(form, threshold, {row: 2.0 * sign}, one)
        self.constant(-1.0, row, one)

    def build(
        self,
    ) -> tuple[Float64[Tensor, "hidden width"], Float64[Tensor, " hidden"], Float64[Tensor, "width hidden"]]:
        """The weights `w1`, `b1`, `w2` of `x + w2 relu(w1 x + b1)`."""
        hidden = len(self._inputs)
        w1 = _dense(self._inputs, hidden, self.width)
        w2 = _dense(self._outputs, hidden, self.width).T.contiguous()
        return w1, torch.tensor(self._biases, dtype=torch.float64), w2


def _dense(forms: Sequence[Form], hidden: int, width: int) -> Float64[Tensor, "hidden width"]:
    """One row of a matrix a form."""
    entries = [(index, row, weight) for index, form in enumerate(forms) for row, weight in form.items()]
    matrix = torch.zeros(hidden, width, dtype=torch.float64)
    if entries:
        units, rows, weights = zip(*entries, strict=True)
        matrix[list(units), list(rows)] = torch.tensor(weights, dtype=torch.float64)
    return matrix


def increment(ffn: FeedForwardBuilder, counter: Sequence[int], result: Sequence[int], one: int) -> None:
    """`result := counter + 1` modulo 2^bits, bipolar bits, least significant first; `counter` is 0 where `one` is 0."""
    for i in range(1, len(counter) + 1):
        total = {counter[j]: 2.0 ** (j - 1) for j in range(i)}
        total[one] = (2.0**i - 1) / 2 + 1
        ffn.bit(total, (2.0 ** (i - 1), 2.0**i, 3 * 2.0 ** (i - 1)), result[i - 1], one)


def select(
    ffn: FeedForwardBuilder, flag: int, yes: Sequence[int], no: Sequence[int], result: Sequence[int], one: int
) -> None:
    """`result += flag ? yes : no`, for bipolar rows and a flag that is 0 or 1."""
    for chosen, other, target in zip(yes, no, result, strict=True):
        for side in (1.0, -1.0):
            ffn.unit({chosen: side, flag: 2.0, one: -2.0}, {target: side})
            ffn.unit({other: side, flag: -2.0}, {target: side})
