"""TAPE's regression tasks: how brightly a mutant of GFP glows, and how stable a small protein is.

Source: TAPE (arXiv 1906.08230), section 3, which trains on near mutants and tests on far ones (fluorescence), or on
neighbours of the best designs (stability), and scores Spearman's rank correlation. The paper of FPT uses neither; they
are the siblings of its remote homology.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic.dataclasses import dataclass

from pipeline.params import STRICT, Seed
from pipeline.tasks import proteins
from pipeline.tasks.faults import BadRows, OnBadRow
from pipeline.tasks.places import Places
from pipeline.tasks.rules import LENGTH_LEVELS, length_level, lookup
from pipeline.tasks.sources import Archive, checksums
from pipeline.tasks.spool import Spools
from pipeline.tasks.tape_files import Form, find_proteins, number_in, read_proteins
from pipeline.tasks.task import TaskData

FIELDS = {"fluorescence": "log_fluorescence", "stability": "stability_score"}
PARTS = {"train": "train", "validation": "valid", "test": "test"}


@dataclass(frozen=True, config=STRICT)
class ProteinRegression:
    """`folder` holds TAPE's files; or `archive` is TAPE's tar archive. `vocabulary` is as in remote homology."""

    kind: Literal["fluorescence", "stability"]
    seed: Seed
    format: Form = "lmdb"
    vocabulary: proteins.Vocabulary = "letters"
    folder: str | None = None
    archive: Archive | None = None
    on_bad_row: OnBadRow = "stop"

    def load(self, places: Places) -> TaskData:
        """The proteins as ids, with TAPE's own splits.

        Raises:
            MissingSource: TAPE's files are nowhere.
            BrokenSource: a file or, while `on_bad_row` is "stop", a protein is not what it should be.
        """
        bad, target_of = BadRows(self.on_bad_row), number_in(FIELDS[self.kind])
        paths = find_proteins(self.kind, PARTS, self.format, self.folder, self.archive, places)
        spools = Spools(places.work, np.uint8, label_dtype=np.float32)
        for spool, path in zip(spools.parts, paths.values(), strict=True):
            for row, sequence, target in read_proteins(path, bad, target_of):
                try:
                    ids = proteins.encode(sequence, self.vocabulary)
                except ValueError as error:
                    bad.add(path, f"row {row}", str(error))
                else:
                    spool.append(ids, np.array([len(ids)]), np.array([[target]]))
        return TaskData(
            kind="ids",
            classes=0,
            readout=1,
            splits=spools.splits(np.float32, pad=proteins.PAD),
            source={"name": f"TAPE {self.kind}", "files": checksums(paths.values())},
            vocabulary=proteins.SIZE[self.vocabulary],
            pad_id=proteins.PAD,
            rules={"length only": lookup(length_level, LENGTH_LEVELS, 0)},
            counts=bad.counts(),
        )
