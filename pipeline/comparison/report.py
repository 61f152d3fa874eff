"""Writes the comparison: report/index.html with everything in it, and the same as Markdown, CSV and PNG."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
from jinja2 import Environment, StrictUndefined
from matplotlib.figure import Figure

from pipeline.comparison.join import Programmed, Row, join, programmed
from pipeline.comparison.plots import STYLE, accuracy_against_cost, learning_curves
from pipeline.comparison.table import (
    COLUMNS,
    METHODS,
    PROGRAM_COLUMNS,
    cells,
    csv_text,
    markdown,
    program_cells,
    reproducible,
)
from pipeline.identity import write_json


@dataclass(frozen=True)
class Picture:
    """A figure of the report: its file's name and what it shows, in a sentence."""

    name: str
    caption: str
    figure: Figure


def write_comparison(folder: Path, tasks: tuple[str, ...], backbones: tuple[str, ...]) -> list[Row]:
    """Join all results of the grid, write `metrics/compare.json` and `report/` below `folder`; return the rows.

    Raises:
        PermafrostError: a result of the grid is missing.
    """
    rows = join(folder, tasks, backbones)
    write_json(folder / "metrics" / "compare.json", reproducible(rows))
    report = folder / "report"
    report.mkdir(parents=True, exist_ok=True)
    programs = programmed(folder)
    tables = (markdown(list(COLUMNS), cells(rows)), markdown(list(PROGRAM_COLUMNS), program_cells(programs)))
    (report / "table.md").write_text("\n".join(tables), encoding="utf-8")
    (report / "table.csv").write_text(csv_text(rows), encoding="utf-8")
    pictures = [
        Picture("accuracy-against-cost", "Test accuracy against the seconds it took", accuracy_against_cost(rows)),
        Picture(
            "learning-curves",
            "Validation accuracy while the full FPT fine-tune trains",
            learning_curves(folder / "metrics" / "curves", tasks, backbones),
        ),
    ]
    for picture in pictures:
        picture.figure.savefig(report / f"{picture.name}.png", dpi=150, metadata={"Software": None})
    (report / "index.html").write_text(_html(rows, programs, pictures), encoding="utf-8")
    return rows


def _html(rows: list[Row], programs: list[Programmed], pictures: list[Picture]) -> str:
    source = files("pipeline.comparison").joinpath("report.html.jinja").read_text(encoding="utf-8")
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(source)
    return template.render(
        columns=list(COLUMNS),
        body=_body(rows),
        program_columns=list(PROGRAM_COLUMNS),
        program_body=program_cells(programs),
        findings=findings(rows),
        pictures=[{"caption": picture.caption, "svg": _svg(picture.figure)} for picture in pictures],
        devices=sorted({row.device for row in rows}),
    )


def _body(rows: list[Row]) -> list[dict[str, Any]]:
    starts = [True, *(before.task != after.task for before, after in pairwise(rows))]
    styles = [
        " ".join(["first"] * start + ["below"] * row.below_floor) for start, row in zip(starts, rows, strict=True)
    ]
    return [{"style": style, "cells": line} for style, line in zip(styles, cells(rows), strict=True)]


def findings(rows: list[Row]) -> list[str]:
    """For each task, in a sentence: the best row, where it stands to the floor, and what one more epoch costs."""
    lines = []
    for task in dict.fromkeys(row.task for row in rows):
        here = [row for row in rows if row.task == task]
        best = max(here, key=lambda row: row.accuracy)
        name, floor = best.best_floor
        standing = "below" if best.below_floor else "above"
        lines.append(
            f"{task}: best is {METHODS[best.method]} on {best.backbone} with {best.accuracy:.3f}, "
            f"{standing} the best floor, {floor:.3f} ({name})."
        )
        below = [f"{METHODS[row.method]} on {row.backbone}" for row in here if row.below_floor]
        if below:
            lines.append(f"{task}: below the floor are {', '.join(below)}.")
        probes = {row.backbone: row for row in here if row.method == "probe"}
        ratios = [
            row.seconds_per_epoch / probes[row.backbone].seconds_per_epoch for row in here if row.method == "finetune"
        ]
        lines.append(f"{task}: an epoch of the fine-tune takes {min(ratios):,.0f} times an epoch on the cache or more.")
    return lines


def _svg(figure: Figure) -> str:
    """The figure as an SVG element, without the XML prologue and without a date."""
    out = io.StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return re.sub(r"^.*?(?=<svg)", "", out.getvalue(), flags=re.DOTALL)
