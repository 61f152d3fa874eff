"""Program text into statements: words with their place, so that every later error can point at one."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pipeline.errors import PermafrostError

NAME = re.compile(r"[A-Za-z_]\w*\Z")
_WORD = re.compile(r"<=|[^\s:;/\[\]]+|[:/\[\]]")


class AssemblyError(PermafrostError):
    """Program text that cannot be assembled: file, line, column, the text itself, what is wrong and how to mend it."""


@dataclass(frozen=True)
class Word:
    """One word of a line; `line` and `column` count from 1."""

    text: str
    line: int
    column: int


@dataclass(frozen=True)
class Statement:
    """One line without its comment: an optional `label:` and the words after it."""

    label: Word | None
    words: tuple[Word, ...]

    @property
    def first(self) -> Word:
        """The word to point at when the whole line is meant."""
        return self.words[0] if self.words else self.label  # type: ignore[return-value]  # one of the two exists


@dataclass(frozen=True)
class Source:
    """Program text and the name it is known by in errors."""

    text: str
    name: str

    def error(self, at: Word, what: str, mend: str) -> AssemblyError:
        """The error `what` at a word, with its line and a caret under it."""
        line = self.text.splitlines()[at.line - 1]
        caret = " " * (at.column - 1) + "^" * max(1, len(at.text))
        return AssemblyError(f"{self.name}:{at.line}:{at.column}: {what}\n    {line}\n    {caret}", mend=mend)

    def missing(self, what: str, mend: str) -> AssemblyError:
        """An error about something that stands nowhere: it points behind the last line."""
        lines = self.text.splitlines() or [""]
        return AssemblyError(f"{self.name}:{len(lines)}:{len(lines[-1]) + 1}: {what}\n    {lines[-1]}", mend=mend)

    def statements(self) -> list[Statement]:
        """The lines that say something. `;` starts a comment; a first word with `:` behind it is a label.

        Raises:
            AssemblyError: a label that is not a name.
        """
        found = []
        for number, line in enumerate(self.text.splitlines(), start=1):
            code = line.split(";", 1)[0]
            words = [Word(match.group(), number, match.start() + 1) for match in _WORD.finditer(code)]
            label = None
            if len(words) > 1 and words[1].text == ":":
                label, words = words[0], words[2:]
                if not NAME.match(label.text):
                    raise self.error(
                        label, f"{label.text!r} is not a name", "use letters, digits and _, no digit first"
                    )
            if label or words:
                found.append(Statement(label, tuple(words)))
        return found


@dataclass(frozen=True)
class Sections:
    """A program's statements by section, and the number that its one-line setting (`.word`, `.cells`) gives."""

    data: list[Statement]
    code: list[Statement]
    setting: int | None


def split_sections(source: Source, setting: str) -> Sections:
    """Sort statements into `.data` and `.code`, and read the setting (`.word` or `.cells`), a positive integer.

    Raises:
        AssemblyError: an unknown directive, a statement before any section, a setting that is no positive integer,
            or no code at all.
    """
    sections: dict[str, list[Statement]] = {".data": [], ".code": []}
    current, value = None, None
    for statement in source.statements():
        head = statement.first
        if statement.label is None and head.text in sections:
            current = sections[head.text]
            if len(statement.words) > 1:
                raise source.error(statement.words[1], "a section's name stands alone on its line", "start a new line")
        elif statement.label is None and head.text == setting:
            value = _setting(source, statement)
        elif statement.label is None and head.text.startswith("."):
            raise source.error(head, f"unknown directive {head.text}", f"use .data, .code or {setting} NUMBER")
        elif current is None:
            raise source.error(head, "a statement before any section", "put .data or .code above it")
        else:
            current.append(statement)
    if not sections[".code"]:
        raise source.missing("the program has no code", "add a .code section with at least one instruction")
    return Sections(sections[".data"], sections[".code"], value)


def _setting(source: Source, statement: Statement) -> int:
    head = statement.words[0]
    if len(statement.words) != 2 or not statement.words[1].text.isdecimal() or int(statement.words[1].text) == 0:
        raise source.error(statement.words[-1], f"{head.text} needs one positive integer", f"write `{head.text} 16`")
    return int(statement.words[1].text)
