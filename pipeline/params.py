"""Reads params.yaml into frozen dataclasses, and says exactly what is wrong with it.

Each stage's package owns the dataclass of its section (`pipeline/probes/settings.py` and so on), because DVC reruns
by file: a new knob for the probe must not make the cache stale. This module only reads, checks and explains. YAML is
1.2, as DVC reads it, so that `1e-3` is a number and `off` a word.
"""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from pipeline.errors import PermafrostError

T = TypeVar("T")

SECTIONS = ("grid", "tasks", "backbones", "cache", "probe", "finetune", "pretrain")
STRICT = ConfigDict(extra="forbid", strict=True)
"""For each section's dataclass: unknown keys are refused and nothing is converted in silence."""

Seed = Annotated[int, Field(ge=0)]
LARGEST = 2**53
"""Beyond, whole numbers are not whole to every reader of JSON, and a seed is none to numpy or torch."""


def distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """A validator: nothing is asked for twice."""
    twice = [value for place, value in enumerate(values) if value in values[:place]]
    if twice:
        raise ValueError(f"{twice[0]!r} stands there twice")
    return values


class ParamsError(PermafrostError):
    """params.yaml holds something that cannot be used: the key, its line, and the nearest key that exists."""


class Params:
    """A params.yaml, read but not yet interpreted. `section` and `entry` give checked dataclasses out of it."""

    def __init__(self, path: Path) -> None:
        """Read the file.

        Raises:
            ParamsError: the file is missing, is not YAML, holds a key twice or what JSON has no word for, or has an
                unknown section.
        """
        self.path = path
        try:
            document = YAML(typ="rt").load(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise ParamsError(f"{path} does not exist", mend="run from the folder that holds params.yaml") from error
        except (YAMLError, UnicodeDecodeError, RecursionError) as error:
            raise ParamsError(f"{path} is not valid YAML:\n{error}") from error
        if not isinstance(document, dict):
            raise ParamsError(f"{path} holds no sections; it needs {', '.join(SECTIONS)}")
        self._document = document
        self._require_plain([], document, [])
        for name in document:
            if name not in SECTIONS:
                raise ParamsError(f"{self._at([name])}unknown section {name!r}{nearest(name, SECTIONS)}")

    def section(self, name: str, kind: type[T]) -> T:
        """The section `name` as the dataclass `kind`.

        Raises:
            ParamsError: the section is missing, or a key in it is unknown, missing, mistyped or out of range.
        """
        return self._read([name], kind)

    def names(self, section: str) -> list[str]:
        """The entries of a section that maps names to settings, e.g. the known tasks.

        Raises:
            ParamsError: the section is missing or no mapping.
        """
        node = self._node([section])
        if not isinstance(node, dict):
            raise ParamsError(f"{self._at([section])}{section} must map names to their settings, found {node!r}")
        return list(node)

    def entry(self, section: str, name: str, kind: Any) -> Any:
        """One named entry of a section, e.g. `tasks.digits`, as the dataclass `kind` (or one of a tagged union).

        Raises:
            ParamsError: there is no such entry (the nearest one is named), or it is not valid.
        """
        known = self.names(section)
        if name not in known:
            raise ParamsError(f"{self.path}: {section} has no entry {name!r}{nearest(name, known)}")
        return self._read([section, name], kind)

    def plain(self, *keys: str) -> Any:
        """The value at `keys` as plain JSON types: what an identity is made of."""
        return json.loads(json.dumps(self._node(list(keys))))

    def _require_plain(self, path: list[Any], node: Any, above: list[Any]) -> None:
        """Refuse what YAML can hold and JSON cannot: dates, sets, bytes, tags, numbers as keys, an anchor in itself."""
        dotted = ".".join(map(str, path))
        if any(node is one for one in above):
            raise ParamsError(f"{self._at(path)}{dotted} holds itself, by an anchor")
        if isinstance(node, dict):
            for key, value in node.items():
                if not isinstance(key, str):
                    raise ParamsError(f"{self._at(path)}the key {key!r} is no word", mend="quote it, if it is a name")
                self._require_plain([*path, key], value, [*above, node])
        elif isinstance(node, list):
            for place, value in enumerate(node):
                self._require_plain([*path, place], value, [*above, node])
        elif not isinstance(node, str | int | float | None):
            raise ParamsError(
                f"{self._at(path)}{dotted} is a {type(node).__name__} to YAML ({node})",
                mend="quote it, if it is meant as text",
            )
        elif isinstance(node, int | float) and not abs(node) <= LARGEST:
            raise ParamsError(f"{self._at(path)}{dotted}: {node} is no finite number of at most 2^53")

    def _node(self, keys: list[str]) -> Any:
        node: Any = self._document
        for depth, key in enumerate(keys):
            if not isinstance(node, dict) or key not in node:
                raise ParamsError(f"{self.path}: {'.'.join(keys[: depth + 1])} is missing")
            node = node[key]
        return node

    def _read(self, keys: list[str], kind: Any) -> Any:
        node = self._node(keys)
        try:
            return TypeAdapter(kind).validate_json(json.dumps(node))
        except ValidationError as error:
            lines = [self._explain(keys, detail, kind) for detail in error.errors()]
            raise ParamsError("\n".join(lines)) from error

    def _explain(self, keys: list[str], detail: ErrorDetails, kind: Any) -> str:
        """One of pydantic's findings as `file:line: key: what is wrong`."""
        *above, key = path = self._path(keys, detail["loc"])
        at, dotted = self._at(path), ".".join(str(step) for step in path)
        if detail["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
            return f"{at}unknown key {dotted}{nearest(str(key), _known_keys(kind, self._node(above)))}"
        if detail["type"] in ("missing", "missing_argument"):
            return f"{at}{dotted} is missing"
        return f"{at}{dotted}: {detail['msg']}, found {json.dumps(detail['input'])}"

    def _path(self, keys: list[str], loc: tuple[Any, ...]) -> list[Any]:
        """pydantic's path without the tags of unions, which are not keys of the file.

        A tag comes first below its mapping, and may also be a key of it: a task of kind `text` has a column `text`.
        """
        node, tagged = self._node(keys), None
        path: list[Any] = [*keys]
        for depth, step in enumerate(loc):
            if isinstance(node, dict) and node is not tagged and step in (node.get("kind"), node.get("source")):
                tagged = node
                continue
            listed = isinstance(step, int) and isinstance(node, list) and step < len(node)
            present = listed or (isinstance(node, dict) and step in node)
            if present or depth == len(loc) - 1:
                path.append(step)
            node = node[step] if present else node
        return path

    def _at(self, path: list[Any]) -> str:
        """`file:line: ` of the deepest step of `path` that exists in the file."""
        node: Any = self._document
        line = 0
        for step in path:
            try:
                line = node.lc.key(step)[0] if isinstance(step, str) else node.lc.item(step)[0]
                node = node[step]
            except (AttributeError, KeyError, IndexError, TypeError):
                break
        return f"{self.path}:{line + 1}: "


def _known_keys(kind: Any, node: dict[str, Any]) -> list[str]:
    """The keys that a mapping may have: of all dataclasses in `kind`, those of the one that fits `node` best.

    In a union told apart by `kind`, that is the one of this kind; otherwise the one that shares the most keys.
    """
    schema = TypeAdapter(kind).json_schema()
    candidates = [part.get("properties", {}) for part in (schema, *schema.get("$defs", {}).values())]

    def fit(properties: dict[str, Any]) -> tuple[bool, int]:
        tag = properties.get("kind", {})
        return node.get("kind") in tag.get("enum", [tag.get("const", object)]), len({*properties} & {*node})

    return list(max(candidates, key=fit))


def nearest(name: str, known: list[str] | tuple[str, ...]) -> str:
    """`; did you mean 'x'?` or, when nothing is near, `; known: a, b, c`."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known) or 'none'}"
