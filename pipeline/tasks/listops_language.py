"""The language of ListOps: nested MIN, MAX, MED and SM over digits, as ids, with its own evaluator.

Source: Nangia and Bowman, "ListOps" (arXiv 1804.06028), in the form of the Long Range Arena (arXiv 2011.04006). Ids
are fixed, not the order of a hash set: 0 pad, 1 to 10 the digits, 11 to 14 the operators, 15 the closing bracket. MED
is the median, halves rounded down; SM the sum modulo 10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

PAD = 0
DIGITS = range(1, 11)
OPERATORS = ("MIN", "MAX", "MED", "SM")
FIRST_OPERATOR = 11
CLOSE = 15
VOCABULARY = 16
VOCABULARY_WITHOUT_BRACKETS = 15
CLASSES = 10

IDS = (
    {str(digit): digit + 1 for digit in range(10)}
    | {f"[{name}": FIRST_OPERATOR + place for place, name in enumerate(OPERATORS)}
    | {"]": CLOSE}
)
NAMES = {number: name for name, number in IDS.items()}


class BadExpression(ValueError):
    """An expression that is not one: where it goes wrong, and how."""


def _median(values: list[int]) -> int:
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) // 2


MEANING: dict[int, Callable[[list[int]], int]] = dict(
    zip(range(FIRST_OPERATOR, CLOSE), (min, max, _median, lambda values: sum(values) % 10), strict=True)
)


def parse(source: str) -> list[int]:
    """The ids of an expression in the Long Range Arena's notation, e.g. `( ( ( [MAX 2 ) 9 ) ] )`.

    Its parentheses only repeat the nesting that the brackets give; they must balance and are left out.

    Raises:
        BadExpression: an unknown token, or parentheses that do not balance.
    """
    words = source.split()
    opened, closed = words.count("("), words.count(")")
    if opened != closed:
        raise BadExpression(f"{opened} opening and {closed} closing parentheses")
    try:
        return [IDS[word] for word in words if word not in "()"]
    except KeyError as error:
        raise BadExpression(f"unknown token {error}") from None


def evaluate(ids: Iterable[int]) -> int:
    """The value, 0 to 9, of an expression given as ids with brackets.

    Raises:
        BadExpression: it is not one whole expression.
    """
    operators: list[int] = []
    arguments: list[list[int]] = [[]]
    for place, number in enumerate(ids):
        if number in MEANING:
            operators.append(number)
            arguments.append([])
        elif number == CLOSE:
            values = arguments.pop()
            if not operators or not values:
                raise BadExpression(f"token {place}: ']' closes {'nothing' if not operators else 'an empty list'}")
            arguments[-1].append(MEANING[operators.pop()](values))
        elif number in DIGITS:
            arguments[-1].append(number - 1)
        else:
            raise BadExpression(f"token {place}: id {number} has no meaning")
    if operators:
        raise BadExpression(f"{len(operators)} lists are not closed")
    if len(arguments[0]) != 1:
        raise BadExpression(f"{len(arguments[0])} values where one whole expression is wanted")
    return arguments[0][0]
