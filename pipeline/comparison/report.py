"""Writes the comparison: report/index.html with everything in it, and the same as Markdown, CSV and PNG."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
from jinja2 import Environment, StrictUndefined
from matplotlib.figure import Figure

from pipeline.comparison import published as literature
from pipeline.comparison.accuracy_against_cost import accuracy_against_cost
from pipeline.comparison.join import METHODS, Row, Stages, join, probe_metrics, programmed, stage_costs
from pipeline.comparison.plots import STYLE, learning_curves, time_per_stage
from pipeline.comparison.probe_plots import confusion_matrices, data_curves, layer_sweep
from pipeline.comparison.table import (
    COLUMNS,
    DIFFERENCE_COLUMNS,
    PROGRAM_COLUMNS,
    STAGE_COLUMNS,
    cells,
    cost_columns,
    csv_text,
    difference_cells,
    headers,
    markdown,
    program_cells,
    reproducible,
    scores_named,
    stage_cells,
)
from pipeline.comparison.tasks import COLUMNS as TASK_COLUMNS
from pipeline.comparison.tasks import task_cells
from pipeline.costs.meters import matmul_flops_per_second
from pipeline.errors import PermafrostError
from pipeline.identity import write_json


@dataclass(frozen=True)
class Picture:
    """A figure of the report: its file's name and what it shows, in a sentence."""

    name: str
    caption: str
    figure: Figure


@dataclass(frozen=True)
class Table:
    """A table of the report: its name in the page, and its cells as text."""

    name: str
    columns: list[str]
    body: list[list[str]]


def write_comparison(
    folder: Path,
    tasks: tuple[str, ...],
    backbones: tuple[str, ...],
    price_per_hour: float | None = None,
    sources: Mapping[str, str] | None = None,
) -> list[Row]:
    """Join all results of the grid, write `metrics/compare.json` and `report/` below `folder`; return the rows.

    Dollars are shown only for a `price_per_hour` that the user gives. `sources` of the backbones, as in params.yaml,
    say what published values can stand beside; without one a backbone stands beside none.

    Raises:
        PermafrostError: a result of the grid is missing, or none has a score.
    """
    rows = join(folder, tasks, backbones)
    if not rows:
        raise PermafrostError(
            "no method has a score on test: there is nothing to compare",
            mend="see `status` in metrics/probe/; a task needs test examples, and those of a regression must vary",
        )
    write_json(folder / "metrics" / "compare.json", reproducible(rows))
    report = folder / "report"
    report.mkdir(parents=True, exist_ok=True)
    rate, costs = matmul_flops_per_second(), stage_costs(folder, tasks, backbones)
    columns = COLUMNS | cost_columns(rate, price_per_hour)
    programs, published = programmed(folder), literature.published_cells(rows, literature.published(), sources or {})
    tables = [
        Table("table", headers(rows, columns), cells(rows, columns)),
        Table("differences", list(DIFFERENCE_COLUMNS), difference_cells(rows)),
        Table("tasks", list(TASK_COLUMNS), task_cells(folder, tasks)),
        Table("stages", list(STAGE_COLUMNS), stage_cells(costs, rate)),
        Table("published", list(literature.COLUMNS), published),
        Table("programs", list(PROGRAM_COLUMNS), program_cells(programs)),
    ]
    text = "\n".join(markdown(table.columns, table.body) for table in tables)
    (report / "table.md").write_text(text, encoding="utf-8")
    (report / "table.csv").write_text(csv_text(rows), encoding="utf-8")
    pictures = _pictures(folder, rows, costs)
    for picture in pictures:
        picture.figure.savefig(report / f"{picture.name}.png", dpi=150, metadata={"Software": None})
    maps = attention_maps(folder, costs)
    (report / "index.html").write_text(_html(rows, tables, pictures, maps), encoding="utf-8")
    return rows


def _pictures(folder: Path, rows: list[Row], costs: Stages) -> list[Picture]:
    """Every picture that there are numbers for."""
    tasks, backbones = (tuple(dict.fromkeys(names)) for names in zip(*costs, strict=True))
    probes = probe_metrics(folder, tasks, backbones)
    curves = learning_curves(folder / "metrics" / "curves", tasks, backbones)
    scores = scores_named(rows)
    probe = " or ".join(dict.fromkeys(METHODS[one["method"]] for one in probes.values()))
    wanted = [
        ("accuracy-against-cost", f"Test {scores} against the seconds it took", accuracy_against_cost(rows)),
        ("layer-sweep", f"Test {scores} of the {probe} on each cached layer", layer_sweep(probes)),
        (
            "data-curves",
            f"Test {scores} of the {probe} against the number of training examples",
            data_curves(probes),
        ),
        ("learning-curves", f"Validation {scores} while the full FPT fine-tune trains", curves),
        ("time-per-stage", "Seconds of each stage", time_per_stage(costs)),
        ("confusion", "What the probe that is compared takes each class for", confusion_matrices(probes)),
    ]
    return [Picture(name, caption, figure) for name, caption, figure in wanted if figure is not None]


def attention_maps(folder: Path, costs: Stages) -> list[dict[str, str]]:
    """The attention maps that the fine-tune drew, as addresses that hold the picture itself."""
    return [
        {
            "caption": f"Attention of the fine-tuned network on {task} with {backbone}, {path.stem.replace('-', ' ')}",
            "address": "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode(),
        }
        for task, backbone in costs
        for path in sorted((folder / "data" / "attention" / f"{task}-{backbone}").glob("*.png"))
    ]


def _html(rows: list[Row], tables: list[Table], pictures: list[Picture], maps: list[dict[str, str]]) -> str:
    source = files("pipeline.comparison").joinpath("report.html.jinja").read_text(encoding="utf-8")
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(source)
    return template.render(
        styles=_styles(rows),
        scores=scores_named(rows),
        tables={table.name: table for table in tables},
        findings=findings(rows),
        pictures=[
            {"name": picture.name, "caption": picture.caption, "svg": _svg(picture.figure)} for picture in pictures
        ],
        maps=maps,
        devices=sorted({row.device for row in rows}),
    )


def _styles(rows: list[Row]) -> list[str]:
    """The class of each line of the first table: where a task starts, and what is below its floor."""
    starts = [True, *(before.task != after.task for before, after in pairwise(rows))]
    return [" ".join(["first"] * start + ["below"] * row.below_floor) for start, row in zip(starts, rows, strict=True)]


def findings(rows: list[Row]) -> list[str]:
    """For each task, in a sentence: the best row, where rows stand to the floor, and what one more epoch costs."""
    lines = []
    for task in dict.fromkeys(row.task for row in rows):
        here = [row for row in rows if row.task == task]
        best = max(here, key=lambda row: row.score)
        name, floor = best.best_floor
        lines.append(
            f"{task}: best is {best.label} on {best.backbone} with {best.problem.cell(best.score)}, "
            f"{best.standing} the best floor, {best.problem.cell(floor)} ({name})."
        )
        lines += [f"{task}: {line}" for line in _standings(here)]
        tuned = {row.backbone: row.seconds_per_epoch for row in here if row.method == "finetune"}
        ratios = [
            theirs / row.seconds_per_epoch
            for row in here
            if row.method != "finetune" and row.seconds_per_epoch and (theirs := tuned.get(row.backbone))
        ]
        if ratios:
            lines.append(
                f"{task}: an epoch of the fine-tune takes {min(ratios):,.0f} to {max(ratios):,.0f} times an epoch "
                "on the cache."
            )
    return lines


def _standings(rows: list[Row]) -> list[str]:
    """Which rows of a task are below their floor, and of which that cannot be said either way."""
    lines = []
    for standing in ("below", "not told apart from"):
        named, others = (
            [f"{row.label} on {row.backbone}" for row in rows if (row.standing == standing) == wanted]
            for wanted in (True, False)
        )
        if len(named) == len(rows) > 1:
            lines.append(f"every method is {standing} the best floor.")
        elif len(named) > len(others) > 0:
            lines.append(f"{standing} the floor are all but {', '.join(others)}.")
        elif named:
            lines.append(f"{standing} the floor are {', '.join(named)}.")
    return lines


def _svg(figure: Figure) -> str:
    """The figure as an SVG element, without the XML prologue and without a date; hidden from screen readers.

    What it shows stands in the caption and, as numbers, in the tables.
    """
    out = io.StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return re.sub(r"^.*?<svg", '<svg aria-hidden="true" focusable="false"', out.getvalue(), flags=re.DOTALL)
