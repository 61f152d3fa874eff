"""Reads TAPE's remote homology, raw JSON or LMDB, protein by protein.

Source: https://github.com/songlab-cal/tape. The JSON is one list of dicts. The LMDB is a folder with `data.mdb`; key
`num_examples` and keys "0", "1", … hold pickles, the examples' as dicts. `primary` is the sequence, `fold_label` the
class.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.tasks.faults import BadRows, BrokenSource
from pipeline.tasks.json_rows import json_objects
from pipeline.tasks.safe_pickle import RefusedPickle, plain_data

CLASSES = 1195


def read_proteins(path: Path, bad: BadRows) -> Iterator[tuple[int, str, int]]:
    """Row number, sequence and fold label of each protein.

    Raises:
        BrokenSource: the file is damaged or has another number of examples than it says; or a row is bad (a pickle of
            more than plain data, a missing field, a label beyond 1194) and bad rows stop the run.
    """
    rows = enumerate(json_objects(path)) if path.suffix == ".json" else _read_lmdb(path, bad)
    for row, example in rows:
        try:
            sequence, label = _fields(example)
        except ValueError as error:
            bad.add(path, f"row {row}", str(error))
        else:
            yield row, sequence, label


def _fields(example: Any) -> tuple[str, int]:
    if not isinstance(example, dict):
        raise ValueError(f"a {type(example).__name__} where a dict is wanted")
    for name, kind in (("primary", str), ("fold_label", int)):
        if name not in example:
            raise ValueError(f"no field {name!r}")
        if not isinstance(example[name], kind) or isinstance(example[name], bool):
            raise ValueError(f"{name} is not {'text' if kind is str else 'a whole number'}")
    if not 0 <= example["fold_label"] < CLASSES:
        raise ValueError(f"fold_label {example['fold_label']} is not one of 0 to {CLASSES - 1}")
    return example["primary"], example["fold_label"]


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
