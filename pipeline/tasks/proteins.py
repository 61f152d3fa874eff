"""Proteins as ids, in the paper's alphabet or in TAPE's.

`letters`: the 25 letters of the paper, A to Z without J, as 1 to 25; 0 is the pad. `iupac`: TAPE's 30 ids
(https://github.com/songlab-cal/tape, `tokenizers.py`): 0 pad, 1 mask, 2 cls, 3 sep, 4 unknown, then the same letters
from 5; a sequence stands between cls and sep.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import UInt8

Vocabulary = Literal["letters", "iupac"]
LETTERS = "ABCDEFGHIKLMNOPQRSTUVWXYZ"
PAD, CLS, SEP = 0, 2, 3
FIRST = {"letters": 1, "iupac": 5}
SIZE = {name: first + len(LETTERS) for name, first in FIRST.items()}


def encode(sequence: str, vocabulary: Vocabulary) -> UInt8[np.ndarray, " token"]:
    """The ids of a protein.

    Raises:
        ValueError: it is empty, or has a character that is none of the 25 letters.
    """
    if not sequence:
        raise ValueError("the sequence is empty")
    table = np.zeros(128, np.uint8)
    table[[ord(letter) for letter in LETTERS]] = FIRST[vocabulary] + np.arange(len(LETTERS))
    codes = np.frombuffer(sequence.encode("utf-32-le"), np.uint32)
    ids = table[np.minimum(codes, 127)]
    unknown = np.flatnonzero((ids == 0) | (codes > 127))
    if len(unknown):
        place = int(unknown[0])
        raise ValueError(f"letter {sequence[place]!r} at position {place} is not in the vocabulary {LETTERS}")
    return ids if vocabulary == "letters" else np.concatenate([[CLS], ids, [SEP]]).astype(np.uint8)
