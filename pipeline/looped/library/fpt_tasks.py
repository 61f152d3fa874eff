"""Tasks of "Pretrained Transformers as Universal Computation Engines" (arXiv 2103.05247), solved without training.

Bit XOR and bit memory are section 2.1's tasks at small sizes; recall in SUBLEQ shows what a machine without indirect
addressing has to pay. ListOps has a module of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipeline.looped.assembler import assemble
from pipeline.looped.isa import FleqProgram, ProgramError, SubleqProgram
from pipeline.looped.library import fleq_program
from pipeline.looped.library.lists import words


def bit_xor(x: Sequence[int], y: Sequence[int], word_bits: int = 8) -> SubleqProgram:
    """`out` := x XOR y, one bit a cell: 4 instructions a bit, |x - y| from one subtraction and its branch."""
    if len(x) != len(y) or {*x, *y} - {0, 1}:
        raise ProgramError(f"{list(x)} and {list(y)} are not bit strings of one length", mend="use lists of 0 and 1")
    parts = [
        f"""        subleq y+{i} x+{i} le{i}   ; x - y > 0: x is 1 and y is 0
        subleq minus_one out+{i}
        jmp next{i}
le{i}:  subleq x+{i} out+{i}           ; x - y is 0 or -1
next{i}:"""
        for i in range(len(x))
    ]
    data = f"x: {words(x)}\ny: {words(y)}\nout: {words([0] * len(x))}\nminus_one: -1"
    code = "\n".join(parts)
    return assemble(f".data\n{data}\n.code\n{code}\nhalt\n", "bit_xor", word_bits)


def recall(pairs: Sequence[tuple[int, int]], query: int, word_bits: int = 8) -> SubleqProgram:
    """`out` := the value of the pair whose key is `query`: 8 instructions a pair, for equality and the copy."""
    parts = [
        f"""        subleq t t
        subleq minus_query t
        subleq keys+{i} t le{i}        ; t = query - key
        jmp next{i}
le{i}:  subleq minus_one t next{i}     ; t + 1 <= 0: query < key
        subleq values+{i} u
        subleq u out
        halt
next{i}:"""
        for i in range(len(pairs))
    ]
    keys, values = words([key for key, _ in pairs]), words([value for _, value in pairs])
    data = f"keys: {keys}\nvalues: {values}\nminus_query: {-query}\nout: 0\nt: 0\nu: 0\nminus_one: -1"
    code = "\n".join(parts)
    return assemble(f".data\n{data}\n.code\n{code}\nhalt\n", "recall", word_bits)


def associative_recall(keys: np.ndarray, values: np.ndarray, query: np.ndarray) -> FleqProgram:
    """`out` := the value whose key is `query`, in five instructions; bipolar, (bits, pairs), up to 8 x 8."""
    threshold = np.full(8, np.abs(query).sum() - 1)
    return fleq_program("associative_recall").with_values(
        {"keys": [keys], "values": [values], "query": [query], "threshold": [threshold]}
    )


def bit_memory(strings: np.ndarray, masked: np.ndarray) -> FleqProgram:
    """`out` := the one of the remembered strings that agrees with `masked`, whose hidden bits are 0.

    Args:
        strings: (string, bit), -1 or +1, up to 8 x 8.
        masked: (bit,), -1, 0 or +1.
    """
    return associative_recall(strings.T, strings.T, masked)
