"""Which of the project's modules a module imports, read off the source: also those imported inside functions."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OURS = ("pipeline", "stages")
DATA = ("*.jinja", "*.yaml", "*.sub", "*.fleq")
"""Files beside a module that it reads as its own."""


def source_of(module: str) -> Path | None:
    """The file of a dotted name, or None when it names no module of the project."""
    path = ROOT.joinpath(*module.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


def imported_by(path: Path) -> set[str]:
    """The project's modules that a file names in its imports, packages on the way included."""
    found: set[str] = set()
    for node in ast.walk(_without_typing(ast.parse(path.read_text(encoding="utf-8")))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            parts = name.split(".")
            if parts[0] in OURS:
                found |= {".".join(parts[: depth + 1]) for depth in range(len(parts))}
    return {name for name in found if source_of(name)}


def _without_typing(tree: ast.Module) -> ast.Module:
    """The module without its `if TYPE_CHECKING:` block, which no run executes."""
    tree.body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING")
    ]
    return tree


def reachable(module: str) -> set[Path]:
    """Every file of the project that running `module` can import, its own included."""
    seen: set[str] = set()
    todo = [module]
    while todo:
        name = todo.pop()
        path = source_of(name)
        if name in seen or path is None:
            continue
        seen.add(name)
        todo += imported_by(path)
        todo += [".".join(name.split(".")[:depth]) for depth in range(1, len(name.split(".")))]
    return {path for name in seen if (path := source_of(name))}


def code_dependencies(stage: str) -> list[str]:
    """What dvc.yaml must list as the code of a stage: each file with content, and templates beside it."""
    files = {path for path in reachable(f"stages.{stage}") if path.read_text(encoding="utf-8").strip()}
    files |= {data for path in files for kind in DATA for data in path.parent.glob(kind)}
    return sorted(path.relative_to(ROOT).as_posix() for path in files)
