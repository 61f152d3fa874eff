"""Reads the Long Range Arena's `basic_{train,val,test}.tsv`: header `Source<TAB>Target`, lines that end in CRLF."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pipeline.tasks.faults import BadRows, BrokenSource
from pipeline.tasks.listops_language import BadExpression, evaluate, parse

HEADER = b"Source\tTarget"
NAMES = {"train": "basic_train.tsv", "validation": "basic_val.tsv", "test": "basic_test.tsv"}


def read_expressions(path: Path, bad: BadRows) -> Iterator[tuple[list[int], int]]:
    """The ids of each expression and its value, line by line.

    An expression must parse, and the target must be what it evaluates to.

    Raises:
        BrokenSource: the header is another one, or a line is bad and bad rows stop the run.
    """
    with path.open("rb") as file:
        header = file.readline().rstrip(b"\r\n")
        if header != HEADER:
            raise BrokenSource(f"{path}, line 1: the header is {header[:80]!r}, not {HEADER!r}")
        for number, line in enumerate(file, start=2):
            try:
                yield _read_line(line.rstrip(b"\r\n"))
            except ValueError as error:
                bad.add(path, f"line {number}", _reason(error))


def _read_line(line: bytes) -> tuple[list[int], int]:
    columns = line.decode("utf-8").split("\t")
    if len(columns) != 2:
        raise BadExpression(f"{len(columns)} of 2 columns")
    source, target = columns
    if not re.fullmatch("[0-9]", target):
        raise BadExpression(f"target {target[:20]!r} is not one of 0 to 9")
    ids = parse(source)
    value = evaluate(ids)
    if value != int(target):
        raise BadExpression(f"target {target}, but the expression is {value}")
    return ids, value


def _reason(error: ValueError) -> str:
    return f"not UTF-8: {error.reason} at byte {error.start}" if isinstance(error, UnicodeDecodeError) else str(error)
