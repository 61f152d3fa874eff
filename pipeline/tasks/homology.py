"""Remote homology: which of 1195 folds a protein has, tested on folds' unseen superfamilies or families.

Source: TAPE (arXiv 1906.08230), as "Pretrained Transformers as Universal Computation Engines" (arXiv 2103.05247),
section 2.1, uses it. The paper has a vocabulary of 25 and TAPE's test; its code has TAPE's 30 ids with cls and sep,
drops a whole batch as soon as one of its proteins is too long, and scores TAPE's `valid`. What was published is
multiplied by .9739 for the proteins that were dropped: the factor is kept in the attributes, beside the accuracies, and
none of them is multiplied by it.
Deviations: 1195 classes, where the code has 1200 outputs for them; labels beyond are refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from pipeline.params import STRICT, Seed
from pipeline.tasks import draws, proteins
from pipeline.tasks.faults import BadRows, OnBadRow
from pipeline.tasks.places import Places
from pipeline.tasks.rules import LENGTH_LEVELS, length_level, lookup
from pipeline.tasks.sources import Archive, checksums
from pipeline.tasks.spool import Spool, Spools
from pipeline.tasks.tape_files import CLASSES, Form, find_proteins, fold_label, read_proteins
from pipeline.tasks.task import SPLITS, TaskData
from pipeline.tasks.variants import choices

VARIANTS = {
    "paper": {"vocabulary": "letters", "too_long": "drop_sequence", "score_on": "test_fold_holdout"},
    "code": {"vocabulary": "iupac", "too_long": "drop_batch", "score_on": "valid"},
}
PUBLISHED_FACTOR = 0.9739
POOL_BATCHES = 100  # TAPE's loader sorts by length within pools of 100 batches


@dataclass(frozen=True, config=STRICT)
class RemoteHomology:
    """The variants differ in `vocabulary`, in what happens to proteins beyond `max_tokens`, and in the test split.

    `batch` is the code's batch, of which `too_long: drop_batch` drops all; `validation` the share of train that stands
    in where `score_on: valid` takes TAPE's own. `folder` holds TAPE's files; or `archive` is TAPE's tar archive.
    """

    kind: Literal["remote_homology"]
    seed: Seed
    variant: Literal["paper", "code"]
    format: Form = "lmdb"
    vocabulary: proteins.Vocabulary | None = None
    too_long: Literal["drop_sequence", "drop_batch"] | None = None
    score_on: Literal["test_fold_holdout", "test_superfamily_holdout", "test_family_holdout", "valid"] | None = None
    max_tokens: Annotated[int, Field(ge=3)] = 1024
    batch: Annotated[int, Field(ge=1)] = 16
    validation: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    folder: str | None = None
    archive: Archive | None = None
    on_bad_row: OnBadRow = "stop"

    def load(self, places: Places) -> TaskData:
        """The proteins as ids.

        Raises:
            MissingSource: TAPE's files are nowhere.
            BrokenSource: a file or, while `on_bad_row` is "stop", a protein is not what it should be.
        """
        chosen = choices(self, VARIANTS)
        bad = BadRows(self.on_bad_row)
        paths = self._files(places, chosen["score_on"])
        spools = Spools(places.work / "kept", np.uint8)
        dropped: dict[str, int] = {}
        for name, path in paths.items():
            everything = self._read(path, places.work / "all" / name, chosen["vocabulary"], bad)
            dropped[name] = self._keep(everything, name, chosen, spools)
        return TaskData(
            kind="ids",
            classes=CLASSES,
            readout=1,
            splits=spools.splits(np.uint16, pad=proteins.PAD),
            source={"name": "TAPE remote homology", "files": checksums(paths.values())},
            vocabulary=proteins.SIZE[chosen["vocabulary"]],
            pad_id=proteins.PAD,
            choices={**chosen, "published_factor": PUBLISHED_FACTOR},
            rules={"length only": lookup(length_level, LENGTH_LEVELS, CLASSES)},
            counts={"dropped_as_too_long": dropped, **bad.counts()},
        )

    def _files(self, places: Places, score_on: str) -> dict[str, Path]:
        parts = {"train": "train", "validation": "valid", "test": score_on}
        if score_on == "valid":
            parts.pop("validation")
        return find_proteins("remote_homology", parts, self.format, self.folder, self.archive, places)

    def _read(self, path: Path, folder: Path, vocabulary: proteins.Vocabulary, bad: BadRows) -> Spool:
        """All proteins of a file, of any length."""
        spool = Spool(folder, np.uint8)
        for row, sequence, label in read_proteins(path, bad, fold_label):
            try:
                ids = proteins.encode(sequence, vocabulary)
            except ValueError as error:
                bad.add(path, f"row {row}", str(error))
            else:
                spool.append(ids, np.array([len(ids)]), np.array([[label]]))
        return spool

    def _keep(self, everything: Spool, name: str, chosen: dict[str, Any], spools: Spools) -> int:
        """Move what is not dropped into its split; how many were dropped."""
        lengths = everything.lengths()
        drop = lengths > self.max_tokens
        if chosen["too_long"] == "drop_batch":
            drop = dropped_with_batch(lengths, self.max_tokens, self.batch, self.seed)
        rows = np.flatnonzero(~drop)
        part = np.full(len(rows), SPLITS.index(name))
        if name == "train" and chosen["score_on"] == "valid":
            part = draws.parts(self.seed, rows, self.validation, 0.0)
        whole = everything.split(max(1, everything.longest), np.uint16)
        for row, target in zip(rows, part, strict=True):
            block = whole.read(int(row), int(row) + 1)
            length = int(lengths[row])
            spools.parts[target].append(block.inputs[0, :length], np.array([length]), block.labels)
        return int(drop.sum())


def dropped_with_batch(lengths: np.ndarray, most: int, batch: int, seed: int) -> np.ndarray:
    """Which examples the code would drop, bool `(example,)`: all of a batch that holds one longer than `most`.

    Batches as TAPE's loader makes them: shuffled, sorted by length within pools of 100 batches, cut.
    """
    shuffled = draws.permutation(seed, "batches", len(lengths))
    drop = np.zeros(len(lengths), bool)
    for start in range(0, len(shuffled), batch * POOL_BATCHES):
        pool = shuffled[start : start + batch * POOL_BATCHES]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        for first in range(0, len(pool), batch):
            rows = pool[first : first + batch]
            drop[rows] = (lengths[rows] > most).any()
    return drop
