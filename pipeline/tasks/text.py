"""Your own text: rows of text and label from a file, tokenized by a backbone's tokenizer, read by that backbone.

The ids are those of the backbone's own embedding table, so no adapter stands in front of it. Rows stream: one pass
reads, tokenizes and writes to scratch, and lengths and labels are known at its end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from dataclasses import dataclass as plain_dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from pipeline.params import STRICT, Seed
from pipeline.tasks import draws
from pipeline.tasks.faults import BadRows, MissingSource, OnBadRow
from pipeline.tasks.labels import Coder, LabelKind, coder
from pipeline.tasks.places import Places
from pipeline.tasks.rules import LENGTH_LEVELS, length_level, lookup
from pipeline.tasks.sources import checksums
from pipeline.tasks.spool import Spools
from pipeline.tasks.task import EMPTY, SPLITS, TRUNCATED, TaskData
from pipeline.tasks.text_files import Columns, TextRow, read_rows
from pipeline.tasks.tokenizer import TextTokenizer, TokenizerSource

BATCH = 2048

ShareOrFile = Annotated[float, Field(ge=0, lt=0.5)] | str
"""A share of the train file, or a file of its own."""


@dataclass(frozen=True, config=STRICT)
class Text:
    """Files of your own: .csv, .tsv or .jsonl (also .gz) or .parquet, with a `text` and a `label` column.

    `validation` and `test` are files too, or shares of `train`: each row is drawn alone, so shares hold on average.
    Texts are cut off at `max_tokens`, special tokens included. `labels` are classes, or numbers: a regression.
    """

    kind: Literal["text"]
    seed: Seed
    train: str
    tokenizer: TokenizerSource
    max_tokens: Annotated[int, Field(ge=3)]
    validation: ShareOrFile = 0.1
    test: ShareOrFile = 0.1
    text: str = "text"
    label: str = "label"
    labels: LabelKind = "classes"
    on_bad_row: OnBadRow = "stop"

    def load(self, places: Places) -> TaskData:
        """The texts as ids.

        Raises:
            MissingSource: a file or the tokenizer is not there.
            BrokenSource: a file or, while `on_bad_row` is "stop", a row is not what it should be.
        """
        tokenizer = TextTokenizer(self.tokenizer, self.max_tokens)
        paths = own_files(self.train, self.validation, self.test)
        bad = BadRows(self.on_bad_row)
        codes = coder(self.labels, paths["train"])
        spools = Spools(places.work, tokenizer.dtype, label_dtype=codes.dtype)
        columns = Columns(self.text, self.label, self.labels)
        counts = {"truncated": 0, "empty": 0}
        for name, path in paths.items():
            rows = 0
            for batch in tokenized(read_rows(path, columns, bad), tokenizer, codes):
                numbers = np.arange(rows, rows + len(batch.lengths))
                part = parts_of(self.seed, name, numbers, self.validation, self.test)
                spools.append(part, batch.ids, batch.lengths, batch.labels, batch.flags)
                counts["truncated"] += int(np.sum(batch.flags & TRUNCATED > 0))
                counts["empty"] += int(np.sum(batch.flags & EMPTY > 0))
                rows += len(part)
        space = codes.space()
        return TaskData(
            kind="ids",
            classes=space.classes,
            readout=1,
            splits=spools.splits(space.dtype, space.order, tokenizer.pad_id),
            source={"name": "text", "files": checksums(paths.values())},
            vocabulary=tokenizer.vocabulary,
            pad_id=tokenizer.pad_id,
            embedding="backbone",
            tokenizer=asdict(self.tokenizer) | {"sha256": tokenizer.sha256},
            label_names=space.names,
            rules={"length only": lookup(length_level, LENGTH_LEVELS, space.classes)},
            counts={**counts, **bad.counts()},
        )


def own_files(train: str, validation: float | str, test: float | str) -> dict[str, Path]:
    """The user's files by split; splits that are shares of train have none.

    Raises:
        MissingSource: one of them does not exist.
    """
    named = {"train": train, "validation": validation, "test": test}
    paths = {name: Path(value) for name, value in named.items() if isinstance(value, str)}
    for name, path in paths.items():
        if not path.exists():
            raise MissingSource(f"{path}, the {name} file, does not exist", mend=f"put it there, or change `{name}`")
    return paths


def parts_of(seed: int, name: str, rows: np.ndarray, validation: float | str, test: float | str) -> np.ndarray:
    """The number of the split that each row of the file `name` goes to."""
    if name != "train":
        return np.full(len(rows), SPLITS.index(name))
    shares = (share if isinstance(share, float) else 0.0 for share in (validation, test))
    return draws.parts(seed, rows, *shares)


@plain_dataclass(frozen=True)
class TokenizedBatch:
    """Ids of some texts one after the other, their lengths and flags, and their labels' codes, `(text, 1)`."""

    ids: np.ndarray
    lengths: np.ndarray
    flags: np.ndarray
    labels: np.ndarray


def tokenized(rows: Iterator[TextRow], tokenizer: TextTokenizer, codes: Coder) -> Iterator[TokenizedBatch]:
    """The rows as ids, in order, two thousand at a time.

    The tokenizer does not hold Python's lock: while it works on one batch, the ids of the one before become arrays
    and the next rows are read. At most three batches are in memory.
    """
    waiting: deque[tuple[np.ndarray, Future[Any]]] = deque()
    with ThreadPoolExecutor(2) as workers:
        while batch := list(islice(rows, BATCH)):
            labels = np.array([[codes.code(label)] for _, label in batch], codes.dtype)
            waiting.append((labels, workers.submit(tokenizer.encode, [text for text, _ in batch])))
            if len(waiting) > 2:
                yield _finished(*waiting.popleft())
        while waiting:
            yield _finished(*waiting.popleft())


def _finished(labels: np.ndarray, job: Future[Any]) -> TokenizedBatch:
    ids, lengths, flags = job.result()
    return TokenizedBatch(ids, lengths, flags, labels)
