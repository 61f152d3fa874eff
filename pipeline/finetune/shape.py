"""What of a task shapes the network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pipeline.errors import PermafrostError
from pipeline.tasks.tokens import Tokens


@dataclass(frozen=True)
class Shape:
    """Sizes of a task: `size` is the numbers in a patch or the ids of a vocabulary, `answers` those of one example.

    `classes` is 0 where answers are numbers. Where `table` is true the ids are those of the backbone's own embedding
    table.
    """

    kind: Literal["patches", "ids"]
    size: int
    length: int
    readout: int
    answers: int
    classes: int
    table: bool = False

    @property
    def scores(self) -> int:
        """Numbers that the head gives at one token of the readout."""
        return self.answers // self.readout * max(1, self.classes)


def shape_of(tokens: Tokens) -> Shape:
    """The shape of a task on disk.

    Raises:
        PermafrostError: ids without a vocabulary.
    """
    size = tokens.features if tokens.kind == "patches" else tokens.vocabulary
    if size is None:
        raise PermafrostError(
            f"{tokens.task} is made of ids but names no vocabulary", mend=f"dvc repro prepare@{tokens.task}"
        )
    table = tokens.kind == "ids" and tokens.embedding == "backbone"
    return Shape(tokens.kind, size, tokens.length, tokens.readout, tokens.answers, tokens.classes, table)
