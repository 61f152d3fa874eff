"""What every benchmark ends in: rows of figures, some with a bound that must hold, as a table and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click


def row(
    name: str, value: float, unit: str, at_least: float | None = None, at_most: float | None = None
) -> dict[str, Any]:
    """One figure; `holds` is None where nothing is promised."""
    value = float(value)
    must = f">= {at_least:g}" if at_least is not None else None if at_most is None else f"<= {at_most:g}"
    holds = value >= at_least if at_least is not None else None if at_most is None else value <= at_most
    return {"name": name, "value": value, "unit": unit, "must": must, "holds": holds}


def finish(rows: list[dict[str, Any]], output: Path | None) -> None:
    """Print the rows, write them as JSON when a file is named, and exit with 1 if what must hold does not."""
    width = max((len(one["name"]) for one in rows), default=0)
    for one in rows:
        verdict = "" if one["must"] is None else f"  must be {one['must']}: {'holds' if one['holds'] else 'FAILS'}"
        value = f"{one['value']:,.0f}" if abs(one["value"]) >= 10_000 else f"{one['value']:,.4g}"
        click.echo(f"{one['name']:{width}} {value:>14} {one['unit']}{verdict}")
    if output is not None:
        output.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    if any(one["holds"] is False for one in rows):
        raise SystemExit(1)
