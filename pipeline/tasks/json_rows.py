"""Reads a JSON file that is one list of objects, object by object: TAPE's raw files are far larger than memory."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.tasks.faults import BrokenSource

PIECE = 2**20


def json_objects(path: Path) -> Iterator[Any]:
    """The members of the list in `path`; at most one of them, and a piece of 1 MiB, is in memory at a time.

    Raises:
        BrokenSource: the file is not UTF-8, or not one JSON list; with the row where it breaks.
    """
    rows = 0
    try:
        for value in _members(path):
            yield value
            rows += 1
    except UnicodeDecodeError as error:
        raise BrokenSource(f"{path}, row {rows}: not UTF-8 ({error.reason})") from error
    except (ValueError, RecursionError) as error:
        raise BrokenSource(f"{path}, row {rows}: {error}") from error


def _members(path: Path) -> Iterator[Any]:
    decoder = json.JSONDecoder()
    with path.open("rb") as file:
        text = _Text(file)
        if text.next_character() != "[":
            raise ValueError("not a JSON list")
        text.start += 1
        if text.next_character() == "]":
            return
        while True:
            text.next_character()
            yield text.decode(decoder)
            separator = text.next_character()
            text.start += 1
            if separator == "]":
                return
            if separator != ",":
                raise ValueError(f"{separator!r} where ',' or ']' is wanted" if separator else "the list is not closed")


class _Text:
    """The file's text from `start` on, read further when it is asked for."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._buffer = ""
        self._ended = False
        self.start = 0

    def next_character(self) -> str:
        """The next character that is no space, where `start` then stands; empty at the end."""
        while True:
            rest = self._buffer[self.start : self.start + 1]
            if rest and not rest.isspace():
                return rest
            self.start += len(rest)
            if not rest and not self._more():
                return ""

    def decode(self, decoder: json.JSONDecoder) -> Any:
        """The JSON value at `start`, which then stands behind it."""
        while True:
            try:
                value, self.start = decoder.raw_decode(self._buffer, self.start)
            except ValueError:
                if not self._more():
                    raise ValueError("the file ends, or is no JSON, within this row") from None
            else:
                return value

    def _more(self) -> bool:
        """Read on, as much again as is unread, so that a long row is not parsed over and over."""
        unread = self._buffer[self.start :]
        piece = b"" if self._ended else self._file.read(max(PIECE, len(unread)))
        self._ended = not piece
        self._buffer, self.start = unread + self._decode(piece, final=self._ended), 0
        return bool(piece)
