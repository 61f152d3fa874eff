"""Draws ListOps expressions with the Long Range Arena's distribution, many at a time.

Source: `lra_benchmarks/data/listops.py` of https://github.com/google-research/long-range-arena. A node is an operator
with probability 1/4, else a digit, and a digit always at depth 10; an operator has 2 to 10 arguments; an expression is
kept iff 500 < operators + digits + closing brackets < 2000. Drawing one at a time and throwing most away is slow, so
a thousand are grown together, level by level. A root that is a digit is never kept, hence never drawn. Deviation: the
source drops an expression it has drawn before; here duplicates are only counted, which at 500 tokens are none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64, UInt8

from pipeline.tasks import draws
from pipeline.tasks.listops_language import CLOSE, FIRST_OPERATOR, OPERATORS

BLOCK = 256
"""Expressions drawn together: example i is the (i mod 256)-th of block i // 256 of its split."""
CANDIDATES = 1024
DEPTH = 10
MOST_ARGUMENTS = 10
SHORTEST, LONGEST = 501, 1999
BLOCK_COUNTERS = 2**64  # more than a block can use: blocks never share random words


@dataclass(frozen=True)
class Level:
    """The nodes of one depth of many trees, tree by tree, siblings together.

    `tree` says whose they are, `arguments` how many children each has (0: a digit).
    """

    tree: Int64[np.ndarray, " node"]
    arguments: Int64[np.ndarray, " node"]

    @property
    def operator(self) -> Bool[np.ndarray, " node"]:
        """Which nodes are operators."""
        return self.arguments > 0


@dataclass(frozen=True)
class Expressions:
    """Expressions one after the other: `ids` with brackets, `lengths` in tokens, and their values."""

    ids: UInt8[np.ndarray, " token"]
    lengths: Int64[np.ndarray, " expression"]
    values: Int64[np.ndarray, " expression"]

    def take(self, start: int, stop: int) -> Expressions:
        """Some of the expressions."""
        ends = np.concatenate([[0], np.cumsum(self.lengths)])
        return Expressions(self.ids[ends[start] : ends[stop]], self.lengths[start:stop], self.values[start:stop])


def draw_block(seed: int, split: str, block: int) -> Expressions:
    """Block number `block` of a split's endless stream: 256 expressions, a function of the arguments alone."""
    random = draws.stream(seed, f"listops/{split}", block * BLOCK_COUNTERS)
    parts: list[Expressions] = []
    while sum(len(part.lengths) for part in parts) < BLOCK:
        parts.append(_write_out(_kept(_grow(random)), random))
    whole = Expressions(*(np.concatenate([getattr(part, name) for part in parts]) for name in FIELDS))
    return whole.take(0, BLOCK)


FIELDS = ("ids", "lengths", "values")


def _grow(random: np.random.Philox) -> list[Level]:
    """The shapes of 1024 trees whose roots are operators."""
    tree = np.arange(CANDIDATES)
    levels = [Level(tree, 2 + draws.below(random.random_raw(CANDIDATES), MOST_ARGUMENTS - 1))]
    for depth in range(2, DEPTH + 1):
        tree = np.repeat(tree, levels[-1].arguments)
        if depth == DEPTH:
            arguments = np.zeros(len(tree), np.int64)
        else:
            drawn = random.random_raw(len(tree))
            low = (drawn & np.uint64(2**32 - 1)) * np.uint64(MOST_ARGUMENTS - 1)
            many = 2 + (low >> np.uint64(32)).astype(np.int64)
            arguments = np.where(drawn >> np.uint64(62) == 0, many, 0)  # the top two bits: 1 in 4
        levels.append(Level(tree, arguments))
    return levels


def _kept(levels: list[Level]) -> list[Level]:
    """The trees whose length is within bounds, numbered anew."""
    lengths = np.zeros(CANDIDATES, np.int64)
    for level in levels:
        lengths += np.bincount(level.tree, weights=1 + level.operator, minlength=CANDIDATES).astype(np.int64)
    kept = (lengths >= SHORTEST) & (lengths <= LONGEST)
    number = np.cumsum(kept) - 1
    return [Level(number[level.tree[kept[level.tree]]], level.arguments[kept[level.tree]]) for level in levels]


def _write_out(levels: list[Level], random: np.random.Philox) -> Expressions:
    """Fill the trees with operators and digits, evaluate them from the leaves up, lay them out from the roots down."""
    symbols = [_symbols(level, random) for level in levels]
    sizes: list[np.ndarray] = []
    values = np.empty(0, np.int64)
    below = np.empty(0, np.int64)
    for level, symbol in zip(reversed(levels), reversed(symbols), strict=True):
        size, value = np.ones(len(symbol), np.int64), symbol - 1
        arguments = level.arguments[level.operator]
        if len(arguments):
            starts = np.cumsum(arguments) - arguments
            size[level.operator] = 2 + np.add.reduceat(below, starts)
            value[level.operator] = _apply(symbol[level.operator], values, arguments, starts)
        sizes.insert(0, size)
        below, values = size, value
    return Expressions(_lay_out(levels, symbols, sizes), sizes[0], values)


def _symbols(level: Level, random: np.random.Philox) -> Int64[np.ndarray, " node"]:
    drawn = random.random_raw(len(level.tree))
    operators = FIRST_OPERATOR + draws.below(drawn, len(OPERATORS))
    return np.where(level.operator, operators, 1 + draws.below(drawn, 10))


def _apply(
    operators: Int64[np.ndarray, " node"],
    values: Int64[np.ndarray, " child"],
    arguments: Int64[np.ndarray, " node"],
    starts: Int64[np.ndarray, " node"],
) -> Int64[np.ndarray, " node"]:
    """Each operator's value; its children are `values[start : start + arguments]`."""
    parent = np.repeat(np.arange(len(arguments)), arguments)
    ordered = np.sort(parent * 10 + values) % 10  # within each parent, as a parent's children stay together
    middle = ordered[starts + (arguments - 1) // 2] + ordered[starts + arguments // 2]
    results = (ordered[starts], ordered[starts + arguments - 1], middle // 2, np.add.reduceat(values, starts) % 10)
    return np.choose(operators - FIRST_OPERATOR, results)


def _lay_out(levels: list[Level], symbols: list[np.ndarray], sizes: list[np.ndarray]) -> UInt8[np.ndarray, " token"]:
    ids = np.full(int(sizes[0].sum()), CLOSE, np.uint8)
    starts = np.cumsum(sizes[0]) - sizes[0]
    for depth, level in enumerate(levels):
        ids[starts] = symbols[depth]
        if depth + 1 < len(levels):
            arguments = level.arguments[level.operator]
            before = np.cumsum(sizes[depth + 1]) - sizes[depth + 1]
            first = np.repeat(before[np.cumsum(arguments) - arguments], arguments)
            starts = np.repeat(starts[level.operator] + 1, arguments) + before - first
    return ids
