"""Reads rows of text and label from CSV, TSV, JSON lines or Parquet, one at a time; the first two plain or gzip."""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from pipeline.params import nearest
from pipeline.tasks.faults import BadRows, BrokenSource
from pipeline.tasks.labels import AS_NUMBERS, LabelKind, number

ROWS_AT_ONCE = 1024


@dataclass(frozen=True)
class Columns:
    """The names of the columns that hold the text and the label, and what labels are."""

    text: str
    label: str
    labels: LabelKind = "classes"


TextRow = tuple[str, int | str | float]


def read_rows(path: Path, columns: Columns, bad: BadRows) -> Iterator[TextRow]:
    """Text and label of every good row.

    Raises:
        BrokenSource: the format is none of these, a column is missing, the file is damaged; or a row is bad (not
            UTF-8, a missing value, a label that is neither text nor a whole number, or no finite number where labels
            are numbers) and bad rows stop the run.
    """
    suffix = (path.with_suffix("") if path.suffix == ".gz" else path).suffix
    if suffix not in READERS:
        raise BrokenSource(f"{path}: unknown format {suffix!r}; known: {', '.join(READERS)}, with .gz too")
    yield from READERS[suffix](path, columns, bad)


def _lines(path: Path) -> TextIOWrapper:
    """The file as text; bytes that are not UTF-8 become lone surrogates, for `_decoded` to find in their row."""
    opened = gzip.open if path.suffix == ".gz" else open
    return opened(path, "rt", encoding="utf-8-sig", errors="surrogateescape", newline="")  # pyright: ignore[reportReturnType]


def _decoded(text: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"not UTF-8 at character {error.start} of {text[:20]!a}") from None
    return text


def _label(value: Any, kind: LabelKind) -> int | str | float:
    if value == "":
        raise ValueError("the label is empty")
    if kind == "numbers":
        return number(value)
    if isinstance(value, float):
        raise ValueError(f"label {value!r} is neither text nor a whole number; {AS_NUMBERS}")
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"label {value!r} is neither text nor a whole number")
    return _decoded(value) if isinstance(value, str) else value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"the text is {'missing' if value is None else type(value).__name__}")
    return _decoded(value)


def _places(path: Path, names: list[str], columns: Columns) -> tuple[int, int]:
    for column in (columns.text, columns.label):
        if column not in names:
            raise BrokenSource(f"{path} has no column {column!r}{nearest(column, names)}")
    return names.index(columns.text), names.index(columns.label)


def _read_delimited(path: Path, columns: Columns, bad: BadRows, delimiter: str = ",") -> Iterator[TextRow]:
    with _lines(path) as file:
        reader = csv.reader(file, delimiter=delimiter, strict=True)
        line = 0
        try:
            header = next(reader, [])
            text, label = _places(path, header, columns)
            while True:
                line = reader.line_num + 1
                try:
                    row = next(reader)
                    if not row:  # an empty line, as many files have at their end
                        continue
                    if len(row) != len(header):
                        raise ValueError(f"{len(row)} of {len(header)} columns")
                    good = _text(row[text]), _label(row[label], columns.labels)
                except StopIteration:
                    return
                except (ValueError, csv.Error) as error:
                    bad.add(path, f"line {line}", str(error))
                else:
                    yield good
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise BrokenSource(f"{path}, line {line}: damaged gzip ({error})") from error


def _read_tabs(path: Path, columns: Columns, bad: BadRows) -> Iterator[TextRow]:
    return _read_delimited(path, columns, bad, "\t")


def _read_json_lines(path: Path, columns: Columns, bad: BadRows) -> Iterator[TextRow]:
    line = 0
    try:
        with _lines(path) as file:
            for line, content in enumerate(file, start=1):
                if not content.strip():
                    continue
                try:
                    good = _json_row(content, columns)
                except (ValueError, RecursionError) as error:
                    bad.add(path, f"line {line}", str(error))
                else:
                    yield good
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BrokenSource(f"{path}, line {line + 1}: damaged gzip ({error})") from error


def _json_row(content: str, columns: Columns) -> TextRow:
    row = json.loads(_decoded(content))
    if not isinstance(row, dict):
        raise ValueError("not a JSON object")
    for column in (columns.text, columns.label):
        if column not in row:
            raise ValueError(f"no column {column!r}{nearest(column, [*row])}")
    return _text(row[columns.text]), _label(row[columns.label], columns.labels)


def _read_parquet(path: Path, columns: Columns, bad: BadRows) -> Iterator[TextRow]:
    import pyarrow
    import pyarrow.parquet

    row = 0
    try:
        with pyarrow.parquet.ParquetFile(path, memory_map=True) as file:
            _places(path, file.schema_arrow.names, columns)
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=[columns.text, columns.label], use_threads=False):
                for text, label in zip(batch.column(columns.text), batch.column(columns.label), strict=True):
                    try:
                        good = _text(text.as_py()), _label(label.as_py(), columns.labels)
                    except ValueError as error:
                        bad.add(path, f"row {row}", _reason(error))
                    else:
                        yield good
                    row += 1
    except (pyarrow.ArrowException, OSError) as error:
        raise BrokenSource(f"{path}, row {row}: not a sound Parquet file ({error})") from error


def _reason(error: ValueError) -> str:
    return f"not UTF-8: {error.reason}" if isinstance(error, UnicodeDecodeError) else str(error)


READERS: dict[str, Callable[[Path, Columns, BadRows], Iterator[TextRow]]] = {
    ".csv": _read_delimited,
    ".tsv": _read_tabs,
    ".jsonl": _read_json_lines,
    ".parquet": _read_parquet,
}
