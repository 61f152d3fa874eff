"""What a task hands over: examples and labels per split, and what is needed to read and to judge them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from jaxtyping import Num, UInt8

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Split:
    """The examples of one split, in a fixed order.

    `inputs` are patches `(example, token, feature)` or ids `(example, token)` in a compact integer dtype;
    `labels` are class numbers `(example, answer)`, one for each token of the readout.
    """

    inputs: Num[np.ndarray, "example token *feature"]
    labels: UInt8[np.ndarray, "example answer"]


@dataclass(frozen=True)
class TaskData:
    """A whole task, made by one module of this package.

    `readout` is how many of the last tokens carry the answer. `offset` and `scale` say how stored patches become
    numbers, `(stored - offset) * scale`, so that they can be stored as they came. `rules` are the accuracies on test
    of the task's own trivial rules, by name. `source` says where the data come from, with a checksum.
    """

    kind: Literal["patches", "ids"]
    classes: int
    readout: int
    splits: dict[str, Split]
    source: dict[str, Any]
    offset: float = 0.0
    scale: float = 1.0
    rules: dict[str, float] = field(default_factory=dict)
