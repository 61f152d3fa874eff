"""What a task hands over: examples and labels per split, and what is needed to read and to judge them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from jaxtyping import Int32, Num, UInt8

SPLITS = ("train", "validation", "test")

BLOCK_ROWS = 1024
"""Rows read at a time where nothing else decides it."""

TRUNCATED = 1
"""Flag of an example whose tail was cut off."""
EMPTY = 2
"""Flag of an example without content of its own: it stands as a single pad token, or as special tokens only."""


@dataclass(frozen=True)
class Block:
    """Consecutive examples of a split.

    `inputs` are patches `(example, token, feature)` or ids `(example, token)`, padded on the right to the longest
    example of the whole task; `labels` are class numbers `(example, answer)`, or the numbers of a regression, the
    answers of the first readout token first; `lengths` count the real tokens and `flags` hold `TRUNCATED` and `EMPTY`,
    both None where all examples are equally long.
    """

    inputs: Num[np.ndarray, "example token *feature"]
    labels: Num[np.ndarray, "example answer"]
    lengths: Int32[np.ndarray, " example"] | None = None
    flags: UInt8[np.ndarray, " example"] | None = None

    def __len__(self) -> int:
        return len(self.inputs)

    def take(self, rows: np.ndarray | slice) -> Block:
        """Some of the examples."""
        lengths, flags = (None if part is None else part[rows] for part in (self.lengths, self.flags))
        return Block(self.inputs[rows], self.labels[rows], lengths, flags)


@dataclass(frozen=True)
class Split:
    """The `examples` of one split in a fixed order; `read(start, stop)` gives any stretch of them.

    Nothing larger than what is asked for need ever be in memory; `read(0, 0)` shows width and dtypes.
    """

    examples: int
    read: Callable[[int, int], Block]

    @classmethod
    def of(
        cls,
        inputs: Num[np.ndarray, "example token *feature"],
        labels: Num[np.ndarray, "example answer"],
        lengths: Int32[np.ndarray, " example"] | None = None,
    ) -> Split:
        """A split that is in memory already."""
        whole = Block(inputs, labels, lengths)
        return cls(len(inputs), lambda start, stop: whole.take(slice(start, stop)))

    @classmethod
    def drawn(cls, examples: int, draw: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]) -> Split:
        """The first `examples` of an endless stream; `draw` makes inputs and labels of the numbers it is asked for."""
        return cls(examples, lambda start, stop: Block(*draw(np.arange(start, stop))))

    def __len__(self) -> int:
        return self.examples

    def blocks(self, rows: int) -> Iterator[Block]:
        """All examples, `rows` at a time."""
        for start in range(0, self.examples, rows):
            yield self.read(start, min(start + rows, self.examples))

    def sample(self, rows: int) -> Block:
        """At most `rows` examples, evenly spread over the split, since a user's file may be sorted by label."""
        wanted = np.linspace(0, self.examples - 1, min(rows, self.examples)).astype(np.int64)
        parts = [self.read(0, 0)]
        for start in range(0, self.examples, BLOCK_ROWS):
            stop = min(start + BLOCK_ROWS, self.examples)
            here = wanted[(wanted >= start) & (wanted < stop)] - start
            if len(here):
                parts.append(self.read(start, stop).take(here))
        inputs, labels = (np.concatenate([getattr(part, name) for part in parts]) for name in ("inputs", "labels"))
        lengths = [part.lengths for part in parts if part.lengths is not None]
        return Block(inputs, labels, np.concatenate(lengths) if lengths else None)


Predictor = Callable[[Block], np.ndarray]
"""Class numbers, or numbers, `(example, answer)` for the examples of a block."""

Rule = Callable[[Split], Predictor]
"""A task's own trivial rule: given the train split, a predictor."""


@dataclass(frozen=True)
class TaskData:
    """A whole task, made by one module of this package.

    `classes` is 0 where answers are numbers. `readout` is how many of the last tokens carry the answer. `offset` and
    `scale` say how stored patches become numbers, `(stored - offset) * scale`, one for all or one for each feature of a
    patch, so that they can be stored as they came. `vocabulary` is how many ids there are and `pad_id` the one on the
    right of short examples. `embedding` is "backbone" where the ids are those of a backbone's own tokenizer, which
    `tokenizer` names. `choices` are the values of what paper and code do differently. `label_names` are the labels
    before they became class numbers. `image` gives side, channels and patch, in pixels. `augment` is what the fine-tune
    does to its train images. `rules` are the task's own trivial rules; `source` says where the data come from, with
    checksums; `counts` is what happened on the way (rows dropped, truncated, skipped).
    """

    kind: Literal["patches", "ids"]
    classes: int
    readout: int
    splits: dict[str, Split]
    source: dict[str, Any]
    offset: float | list[float] = 0.0
    scale: float | list[float] = 1.0
    vocabulary: int | None = None
    pad_id: int = 0
    embedding: Literal["adapter", "backbone"] = "adapter"
    tokenizer: dict[str, Any] | None = None
    choices: dict[str, Any] = field(default_factory=dict)
    label_names: list[int] | list[str] | None = None
    image: dict[str, int] | None = None
    augment: str | None = None
    rules: dict[str, Rule] = field(default_factory=dict)
    counts: dict[str, Any] = field(default_factory=dict)


STORED = (
    "kind",
    "classes",
    "readout",
    "source",
    "offset",
    "scale",
    "vocabulary",
    "pad_id",
    "embedding",
    "tokenizer",
    "choices",
    "label_names",
    "image",
    "augment",
)
"""The fields of `TaskData` that stand in the attributes of what is written to disk."""
