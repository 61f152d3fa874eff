"""List programs in SUBLEQ. It has no indirect addressing, so their code is unrolled: it grows with the list.

`list_sum.fleq` shows the other way, a pointer that walks the list.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.looped.assembler import assemble
from pipeline.looped.isa import SubleqProgram


def words(values: Sequence[int]) -> str:
    """Integers as the right side of a `.data` line."""
    return " ".join(map(str, values))


def reverse(values: Sequence[int], word_bits: int = 16) -> SubleqProgram:
    """`list` in reverse order, in place: 8 instructions a swap."""
    swaps = []
    for low in range(len(values) // 2):
        x, y = f"list+{low}", f"list+{len(values) - 1 - low}"
        pairs = [(x, "s"), (y, "t"), (x, x), (y, y), ("s", y), ("t", x), ("s", "s"), ("t", "t")]
        swaps += [f"subleq {a} {b}" for a, b in pairs]
    code = "\n".join(swaps)
    text = f".data\nlist: {words(values)}\ns: 0\nt: 0\n.code\n{code}\nhalt\n"
    return assemble(text, "reverse", word_bits)


def search(values: Sequence[int], target: int, word_bits: int = 16) -> SubleqProgram:
    """`found` := 1 and `index` := the first place of `target`; if absent, 0 and the length. 8 instructions an element.

    Equality takes two one-sided tests: target - element <= 0, and then target - element + 1 > 0.
    """
    parts = [
        f"""e{i}:   subleq t t
        subleq minus_target t
        subleq list+{i} t le{i}
        jmp no{i}
le{i}:  subleq minus_one t no{i}
        subleq minus_one found
        halt
no{i}:  subleq minus_one index"""
        for i in range(len(values))
    ]
    data = f"list: {words(values)}\nminus_target: {-target}\nfound: 0\nindex: 0\nt: 0\nminus_one: -1"
    code = "\n".join(parts)
    return assemble(f".data\n{data}\n.code\n{code}\nhalt\n", "search", word_bits)


def sort(values: Sequence[int], word_bits: int = 16) -> SubleqProgram:
    """`list` in ascending order, in place, by bubble sort: 9 instructions an exchange, n (n - 1) / 2 exchanges.

    Differences must not overflow: the words need one bit more than the values.
    """
    exchanges = [
        exchange(f"list+{i}", f"list+{i + 1}", f"next{last}_{i}")
        for last in range(len(values) - 1, 0, -1)
        for i in range(last)
    ]
    data, code = f"list: {words(values)}\ns: 0\nt: 0", "\n".join(exchanges)
    return assemble(f".data\n{data}\n.code\n{code}\nhalt\n", "sort", word_bits)


def exchange(x: str, y: str, after: str) -> str:
    """Put two cells in ascending order, with the temporary cells `s` and `t`; `after` is the label behind it."""
    return f"""subleq t t
        subleq s s
        subleq {y} t
        subleq {x} s
        subleq s t {after}      ; t = {x} - {y} <= 0: in order
        subleq t {x}
        subleq s s
        subleq t s
        subleq s {y}
{after}:"""
