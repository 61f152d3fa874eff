"""ListOps: the value of a long nested expression, generated here or read from the Long Range Arena's files.

Source: "Pretrained Transformers as Universal Computation Engines" (arXiv 2103.05247), section 2.1, and its code. The
code's loader drops all brackets, so that the nesting is lost, keeps the first 512 tokens, pads shorter ones to 512 and
reads the answer at position 511, pad or not: that is `variant: paper-code`.
`variant: repaired` keeps the closing brackets and up to 2000 tokens, and reads the answer at the last real token.
Deviation: ids are fixed here; the code's depend on the process' hash seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from jaxtyping import Integer, UInt8
from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from pipeline.params import STRICT, Seed
from pipeline.tasks import listops_language as language
from pipeline.tasks.faults import BadRows, OnBadRow
from pipeline.tasks.listops_files import NAMES, read_expressions
from pipeline.tasks.listops_generator import BLOCK, Expressions, draw_block
from pipeline.tasks.places import Places
from pipeline.tasks.rules import first_id, lookup
from pipeline.tasks.sources import Archive, checksums, fetch_archive, find_files
from pipeline.tasks.spool import Spool
from pipeline.tasks.task import SPLITS, TRUNCATED, Split, TaskData
from pipeline.tasks.variants import choices

VARIANTS = {
    "paper-code": {"brackets": "drop", "max_tokens": 512, "readout_at": "last_position"},
    "repaired": {"brackets": "keep", "max_tokens": 2000, "readout_at": "last_token"},
}
ORIGIN = "https://storage.googleapis.com/long-range-arena/lra_release.gz"
Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, config=STRICT)
class ListOps:
    """`source: generated` draws `train`, `validation` and `test` expressions; `lra_files` reads what is there.

    The variants differ in `brackets`, `max_tokens` (beyond them the tail is cut off) and `readout_at`. `folder` holds
    the three TSV files; or `archive` is a tar archive that holds them.
    """

    kind: Literal["listops"]
    seed: Seed
    variant: Literal["paper-code", "repaired"]
    source: Literal["generated", "lra_files"] = "generated"
    train: Count = 96_000
    validation: Count = 2000
    test: Count = 2000
    brackets: Literal["keep", "drop"] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    readout_at: Literal["last_position", "last_token"] | None = None
    folder: str | None = None
    archive: Archive | None = None
    on_bad_row: OnBadRow = "stop"

    @model_validator(mode="after")
    def _fits(self) -> ListOps:
        if self.source == "generated" and (self.folder or self.archive):
            raise ValueError("folder and archive are for source: lra_files")
        return self

    def load(self, places: Places) -> TaskData:
        """The expressions as ids.

        Raises:
            MissingSource: `lra_files` are nowhere.
            BrokenSource: a file or, while `on_bad_row` is "stop", a line is not what it should be.
        """
        bad = BadRows(self.on_bad_row)
        paths = self._files(places) if self.source == "lra_files" else {}
        spools = {name: Spool(places.work / name, np.uint8) for name in SPLITS}
        truncated = 0
        for name, spool in spools.items():
            for whole in _from_file(paths[name], bad) if paths else self._generated(name):
                ids, lengths, flags = self._cut(whole)
                spool.append(ids, lengths, whole.values[:, None], flags)
                truncated += int(np.sum(flags == TRUNCATED))
        return TaskData(
            kind="ids",
            classes=language.CLASSES,
            readout=1,
            splits=self._splits(spools),
            source={"name": self.source, "files": checksums(paths.values())},
            vocabulary=self._vocabulary,
            pad_id=language.PAD,
            choices=self._choices,
            rules={"root operator only": lookup(first_id, language.VOCABULARY, language.CLASSES)},
            counts={"truncated": truncated, **bad.counts()},
        )

    def examples(
        self, seed: int, split: str, rows: Integer[np.ndarray, " row"]
    ) -> tuple[UInt8[np.ndarray, "row token"], UInt8[np.ndarray, "row answer"]]:
        """Ids and values of the expressions `rows` of a split's endless stream, padded to `max_tokens` with 0.

        0 is nothing but the pad, so lengths are the counts of the other ids.
        """
        inputs = np.zeros((len(rows), self._choices["max_tokens"]), np.uint8)
        labels = np.zeros((len(rows), 1), np.uint8)
        for block in np.unique(rows // BLOCK):
            drawn = draw_block(seed, split, int(block))
            ids, lengths, _ = self._cut(drawn)
            ends = np.cumsum(lengths)
            for place in np.flatnonzero(rows // BLOCK == block):
                which = rows[place] % BLOCK
                inputs[place, : lengths[which]] = ids[ends[which] - lengths[which] : ends[which]]
                labels[place] = drawn.values[which]
        return inputs, labels

    @property
    def _choices(self) -> dict[str, Any]:
        return choices(self, VARIANTS)

    @property
    def _vocabulary(self) -> int:
        kept = self._choices["brackets"] == "keep"
        return language.VOCABULARY if kept else language.VOCABULARY_WITHOUT_BRACKETS

    def _generated(self, name: str) -> Iterator[Expressions]:
        examples = getattr(self, name)
        for block in range(-(-examples // BLOCK)):
            yield draw_block(self.seed, name, block).take(0, min(BLOCK, examples - block * BLOCK))

    def _files(self, places: Places) -> dict[str, Path]:
        archive = self.archive
        download = None if archive is None else lambda cache: _folder_of(fetch_archive(archive, cache))
        known = [places.cache / "listops-1000"]
        found = find_files([*NAMES.values()], self.folder, known, places, download, origin=ORIGIN)
        return {name: found[file] for name, file in NAMES.items()}

    def _cut(self, whole: Expressions) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Ids without what the variant drops, lengths, and flags of the expressions whose tail was cut off."""
        number = np.repeat(np.arange(len(whole.lengths)), whole.lengths)
        kept = (whole.ids != language.CLOSE) | (self._choices["brackets"] == "keep")
        ids, number = whole.ids[kept], number[kept]
        lengths = np.bincount(number, minlength=len(whole.lengths))
        place = np.arange(len(ids)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        most = self._choices["max_tokens"]
        flags = np.where(lengths > most, np.uint8(TRUNCATED), np.uint8(0))
        return ids[place < most], np.minimum(lengths, most), flags

    def _splits(self, spools: dict[str, Spool]) -> dict[str, Split]:
        fixed = self._choices["readout_at"] == "last_position"
        longest = max(1, *(spool.longest for spool in spools.values()))
        width = self._choices["max_tokens"] if fixed else longest
        return {
            name: spool.split(width, np.uint8, pad=language.PAD, ragged=not fixed) for name, spool in spools.items()
        }


def _from_file(path: Path, bad: BadRows) -> Iterator[Expressions]:
    pending: list[tuple[list[int], int]] = []
    for expression in read_expressions(path, bad):
        pending.append(expression)
        if len(pending) == BLOCK:
            yield _together(pending)
            pending = []
    yield _together(pending)


def _together(expressions: list[tuple[list[int], int]]) -> Expressions:
    lengths = np.array([len(ids) for ids, _ in expressions], np.int64)
    flat = np.array([number for ids, _ in expressions for number in ids], np.uint8)
    return Expressions(flat, lengths, np.array([value for _, value in expressions], np.int64))


def _folder_of(unpacked: Path) -> Path:
    """Where in an unpacked archive the files lie."""
    return next((path.parent for path in sorted(unpacked.rglob(NAMES["train"]))), unpacked)
