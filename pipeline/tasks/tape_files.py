"""Finds and reads TAPE's files, raw JSON or LMDB, protein by protein.

Source: https://github.com/songlab-cal/tape. The JSON is one list of dicts. The LMDB is a folder with `data.mdb`; key
`num_examples` and keys "0", "1", … hold pickles, the examples' as dicts. `primary` is the sequence; what is asked of it
is `fold_label`, a class, or a number in a list of one: `log_fluorescence`, `stability_score`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from pipeline.tasks.faults import BadRows, BrokenSource
from pipeline.tasks.json_rows import json_objects
from pipeline.tasks.labels import number
from pipeline.tasks.places import Places
from pipeline.tasks.safe_pickle import RefusedPickle, plain_data
from pipeline.tasks.sources import Archive, fetch_archive, find_files

CLASSES = 1195
Form = Literal["lmdb", "json"]
ORIGIN: dict[Form, str] = {
    "lmdb": "http://s3.amazonaws.com/songlabdata/proteindata/data_pytorch/{}.tar.gz",
    "json": "http://s3.amazonaws.com/songlabdata/proteindata/data_raw_pytorch/{}.tar.gz",
}
Label = TypeVar("Label", int, float)


def find_proteins(
    task: str, parts: dict[str, str], form: Form, folder: str | None, archive: Archive | None, places: Places
) -> dict[str, Path]:
    """The files of TAPE's `task` by split; `parts` are TAPE's names of the splits.

    They are looked for in `folder`, or where downloads are kept; or they come out of TAPE's `archive`.

    Raises:
        MissingSource: they are nowhere.
    """
    wanted = {name: f"{task}_{part}.{form}" for name, part in parts.items()}

    def download(cache: Path) -> Path:
        assert archive is not None
        unpacked = fetch_archive(archive, cache)
        return next((path.parent for path in sorted(unpacked.rglob(wanted["train"]))), unpacked)

    fetch = download if archive else None
    origin = ORIGIN[form].format(task)
    found = find_files([*wanted.values()], folder, [places.cache / task], places, fetch, origin=origin)
    return {name: found[file] for name, file in wanted.items()}


def read_proteins(
    path: Path, bad: BadRows, label_of: Callable[[dict[str, Any]], Label]
) -> Iterator[tuple[int, str, Label]]:
    """Row number, sequence and label of each protein.

    Raises:
        BrokenSource: the file is damaged or has another number of examples than it says; or a row is bad (a pickle of
            more than plain data, a missing field, a label that is none) and bad rows stop the run.
    """
    rows = enumerate(json_objects(path)) if path.suffix == ".json" else _read_lmdb(path, bad)
    for row, example in rows:
        try:
            if not isinstance(example, dict):
                raise ValueError(f"a {type(example).__name__} where a dict is wanted")
            sequence, label = _field(example, "primary"), label_of(example)
            if not isinstance(sequence, str):
                raise ValueError("primary is not text")
        except ValueError as error:
            bad.add(path, f"row {row}", str(error))
        else:
            yield row, sequence, label


def fold_label(example: dict[str, Any]) -> int:
    """The fold of a protein.

    Raises:
        ValueError: there is none, or it is not one of 0 to 1194.
    """
    label = _field(example, "fold_label")
    if not isinstance(label, int) or isinstance(label, bool):
        raise ValueError("fold_label is not a whole number")
    if not 0 <= label < CLASSES:
        raise ValueError(f"fold_label {label} is not one of 0 to {CLASSES - 1}")
    return label


def number_in(field: str) -> Callable[[dict[str, Any]], float]:
    """Reads the number that `field` holds, alone or in a list or array of one; ValueError where it holds none."""

    def read(example: dict[str, Any]) -> float:
        value = _field(example, field)
        plain = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        return number(plain[0] if isinstance(plain, list) and len(plain) == 1 else plain)

    return read


def _field(example: dict[str, Any], name: str) -> Any:
    if name not in example:
        raise ValueError(f"no field {name!r}")
    return example[name]


def _read_lmdb(path: Path, bad: BadRows) -> Iterator[tuple[int, Any]]:
    import lmdb

    try:
        with lmdb.open(str(path), readonly=True, lock=False, subdir=path.is_dir(), readahead=False) as environment:
            count = _example_count(path, environment)
            for row in range(count):
                with environment.begin() as transaction:  # short: a long one pins pages in memory
                    value = transaction.get(str(row).encode())
                if value is None:
                    raise BrokenSource(f"{path}, row {row}: missing, though num_examples is {count}")
                try:
                    yield row, plain_data(bytes(value))
                except RefusedPickle as error:
                    bad.add(path, f"row {row}", f"refused: {error}")
    except lmdb.Error as error:
        raise BrokenSource(f"{path} is not a sound LMDB: {error}") from error


def _example_count(path: Path, environment: Any) -> int:
    with environment.begin() as transaction:
        value = transaction.get(b"num_examples")
        entries = transaction.stat()["entries"]
    if value is None:
        raise BrokenSource(f"{path} has no key num_examples")
    try:
        count = plain_data(bytes(value))
    except RefusedPickle as error:
        raise BrokenSource(f"{path}, key num_examples: refused: {error}") from error
    if not isinstance(count, int) or count != entries - 1:
        raise BrokenSource(f"{path} says num_examples {count!r} and holds {entries - 1}")
    return count
