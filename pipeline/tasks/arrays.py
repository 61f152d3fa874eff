"""Your own arrays: patches or ids in .npy or .npz files, memory-mapped.

A split is a folder with `inputs.npy` and `labels.npy`, or an .npz file with `inputs` and `labels`; where examples are
of unequal length, padded on the right, `lengths` too. Patches are `(example, token, feature)` numbers, ids
`(example, token)` whole numbers from 0; labels are `(example,)` or `(example, answer)`, whole numbers or strings that
name classes, or any numbers where `labels: numbers` asks for a regression.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from pipeline.params import STRICT, Seed
from pipeline.tasks.array_files import ArrayRows, ArraySource, good_rows, largest_id, open_arrays
from pipeline.tasks.faults import BadRows, BrokenSource, OnBadRow
from pipeline.tasks.labels import Coder, LabelKind, coder, smallest_dtype
from pipeline.tasks.places import Places
from pipeline.tasks.rules import LENGTH_LEVELS, length_level, lookup
from pipeline.tasks.sources import checksums
from pipeline.tasks.spool import Spools
from pipeline.tasks.task import EMPTY, Rule, TaskData
from pipeline.tasks.text import ShareOrFile, own_files, parts_of


@dataclass(frozen=True, config=STRICT)
class Arrays:
    """`train` is an .npz file or a folder; `validation` and `test` too, or they are shares of train.

    `vocabulary` is the number of ids, by default one more than the largest; `pad_id` what stands right of short
    examples; the answers are read off the last `readout` tokens, by default one for each answer, numbers all off one.
    """

    kind: Literal["arrays"]
    seed: Seed
    inputs: Literal["patches", "ids"]
    train: str
    labels: LabelKind = "classes"
    validation: ShareOrFile = 0.1
    test: ShareOrFile = 0.1
    vocabulary: Annotated[int, Field(ge=1)] | None = None
    pad_id: Annotated[int, Field(ge=0)] = 0
    readout: Annotated[int, Field(ge=1)] | None = None
    on_bad_row: OnBadRow = "stop"

    def load(self, places: Places) -> TaskData:
        """The arrays as they are, labels encoded, or in float32 where they are numbers.

        Raises:
            MissingSource: a file is not there.
            BrokenSource: an array or, while `on_bad_row` is "stop", a row is not what it should be.
        """
        paths = own_files(self.train, self.validation, self.test)
        unpacked = places.work / "npz"
        sources = {name: open_arrays(path, unpacked / name, self.labels) for name, path in paths.items()}
        self._check(sources)
        vocabulary = None if self.inputs == "patches" else self.vocabulary or 1 + max(map(largest_id, sources.values()))
        vocabulary = max(vocabulary, self.pad_id + 1) if vocabulary is not None else None
        pad = 0 if vocabulary is None else self.pad_id
        first = sources["train"]
        bad, codes = BadRows(self.on_bad_row), coder(self.labels, first.path)
        answers = first.labels.shape[1]
        spools = Spools(places.work, _dtype(first, vocabulary), first.inputs.shape[2:], answers, codes.dtype)
        empty = 0
        for name, source in sources.items():
            for rows, block in good_rows(source, vocabulary, bad):
                _append(spools, parts_of(self.seed, name, rows, self.validation, self.test), block, codes, pad)
                empty += int(np.sum(block.flags & EMPTY > 0))
        space = codes.space()
        ragged = first.lengths is not None
        rules: dict[str, Rule] = {}
        if ragged and answers == 1:
            rules["length only"] = lookup(length_level, LENGTH_LEVELS, space.classes)
        return TaskData(
            kind=self.inputs,
            classes=space.classes,
            readout=self.readout or (answers if self.labels == "classes" else 1),
            splits=spools.splits(space.dtype, space.order, pad, ragged),
            source={"name": "arrays", "files": _checksums(paths)},
            vocabulary=vocabulary,
            pad_id=self.pad_id,
            label_names=space.names,
            rules=rules,
            counts={"empty": empty, **bad.counts()},
        )

    def _check(self, sources: dict[str, ArraySource]) -> None:
        """Raises BrokenSource where shapes or dtypes do not fit together, or not what `inputs` says."""
        first = sources["train"]
        axes, kinds = (3, "fiub") if self.inputs == "patches" else (2, "iu")
        for source in sources.values():
            shape, dtype = source.inputs.shape, source.inputs.dtype
            if len(shape) != axes or dtype.kind not in kinds:
                raise BrokenSource(f"{source.path}: inputs of shape {shape} and dtype {dtype} are not {self.inputs}")
            if shape[1:] != first.inputs.shape[1:] or dtype != first.inputs.dtype:
                raise BrokenSource(f"{source.path}: inputs are {shape} {dtype}, {first.path} has {first.inputs.shape}")
            if source.labels.shape[1] != first.labels.shape[1] or (source.lengths is None) != (first.lengths is None):
                raise BrokenSource(f"{source.path} and {first.path} differ in answers, or in having lengths")
        answers = first.labels.shape[1]
        if self.readout is not None and (answers % self.readout or self.readout > first.inputs.shape[1]):
            raise BrokenSource(f"{first.path}: {answers} answers cannot be read off {self.readout} tokens")


def _dtype(source: ArraySource, vocabulary: int | None) -> Any:
    if vocabulary is not None:
        return smallest_dtype(vocabulary)
    dtype = source.inputs.dtype
    return np.float32 if dtype.itemsize > 4 else np.uint8 if dtype.kind == "b" else dtype.newbyteorder("=")


def _append(spools: Spools, part: np.ndarray, block: ArrayRows, codes: Coder, pad: int) -> None:
    real = np.arange(block.inputs.shape[1]) < block.lengths[:, None]
    block.inputs[block.flags == EMPTY, :1] = pad  # what stands in an empty row is no content
    labels = np.array([[codes.code(label) for label in row] for row in block.labels.tolist()], codes.dtype)
    tokens = block.inputs[real].astype(spools.dtype)
    spools.append(part, tokens, block.lengths, labels.reshape(block.labels.shape), block.flags)


def _checksums(paths: dict[str, Path]) -> dict[str, str]:
    """Checksums by split and file, as folders hold files of the same names."""
    found = {}
    for name, path in paths.items():
        files = sorted(path.glob("*.npy")) if path.is_dir() else [path]
        found |= {f"{name}/{file}": digest for file, digest in checksums(files).items()}
    return found
