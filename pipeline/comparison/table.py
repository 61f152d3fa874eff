"""The comparison as a table: columns once, written as Markdown, CSV and, for the report, HTML cells."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable
from typing import Any

from pipeline.comparison.join import SHARED_BY, Programmed, Row, Stages
from pipeline.comparison.statistics import difference
from pipeline.costs.amortised import dollars
from pipeline.costs.meters import utilisation

MIB = 2**20
LINEAR = "linear model on raw inputs"


def _optional(value: float | int | None, form: str, times: float = 1.0) -> str:
    return "–" if value is None else form.format(times * value)


def _uses(value: float | None) -> str:
    """From how many uses on a cache has paid for itself: there are only whole ones."""
    if value is None:
        return "–"
    return "never" if math.isinf(value) else f"{math.ceil(value):,}"


SCORE = "test accuracy"
"""Of the columns the one whose head is the score's name; see `headers`."""
COLUMNS: dict[str, Callable[[Row], str]] = {
    "task": lambda row: row.task,
    "backbone": lambda row: row.backbone,
    "method": lambda row: row.label + (f" ({row.status})" if row.status != "fitted" else ""),
    SCORE: lambda row: row.problem.cell(row.score) + (" ▼" if row.below_floor else ""),
    "95 % interval": lambda row: f"{row.low:.3f}–{row.high:.3f}",
    "best floor": lambda row: f"{row.problem.cell(row.best_floor[1])} ({row.best_floor[0]})",
    "linear on raw inputs": lambda row: row.problem.cell(row.floors[LINEAR]) if LINEAR in row.floors else "–",
    "trained parameters": lambda row: f"{row.trained_parameters:,}",
    "seconds in all": lambda row: f"{row.seconds:,.1f}",
    "FLOPs in all": lambda row: f"{row.flops:.2e}",
    "ms per epoch after the first": lambda row: _optional(row.seconds_per_epoch, "{:,.2f}", 1000.0),
    "break-even, FPT epochs": lambda row: _uses(row.break_even_epochs),
    "break-even, probes": lambda row: _uses(row.break_even_probes),
    f"seconds each, {SHARED_BY} probes on the cache": lambda row: _optional(row.amortised_seconds, "{:,.2f}"),
    "recipe": lambda row: row.recipe or "–",
}


SHORT = {
    name: COLUMNS[name]
    for name in ("task", "backbone", "method", SCORE, "best floor", "seconds in all", "FLOPs in all")
}
"""The columns that fit a terminal."""

PROGRAM_COLUMNS: dict[str, Callable[[Programmed], str]] = {
    "task": lambda row: row.task,
    "method": lambda row: "looped transformer, programmed",
    "accuracy": lambda row: f"{row.accuracy:.3f}",
    "examples": lambda row: f"{row.examples:,}",
    "layers × width": lambda row: f"{row.layers} × {row.width}",
    "most passes": lambda row: f"{row.passes:,}",
    "FLOPs per example": lambda row: f"{row.flops_per_example:.2e}",
}


def scores_named(rows: list[Row]) -> str:
    """The scores of some rows by name: `accuracy`, `R²`, or `accuracy or R²`."""
    return " or ".join(dict.fromkeys(row.problem.label for row in rows))


def headers(rows: list[Row], columns: dict[str, Callable[[Row], str]] = COLUMNS) -> list[str]:
    """The table's head, which says what scores there are."""
    return [f"test {scores_named(rows)}" if name == SCORE else name for name in columns]


def cells(rows: list[Row], columns: dict[str, Callable[[Row], str]] = COLUMNS) -> list[list[str]]:
    """The table's body, formatted; ▼ marks a score below a trivial predictor's."""
    return [[column(row) for column in columns.values()] for row in rows]


DIFFERENCE_COLUMNS = ("task", "backbone", "probe", "fine-tune − probe", "95 % interval", "seconds saved")


def difference_cells(rows: list[Row]) -> list[list[str]]:
    """For each probe: the fine-tune on the same task and backbone less the probe, with Newcombe's interval."""
    tuned = {(row.task, row.backbone): row for row in rows if row.method == "finetune"}
    lines = []
    for row in rows:
        other = tuned.get((row.task, row.backbone))
        if row.method == "finetune" or other is None:
            continue
        low, middle, high = difference(other, row)
        saved = f"{other.seconds - row.seconds:,.1f}"
        gained = row.problem.cell(middle, "+.3f")
        lines.append([row.task, row.backbone, row.label, gained, f"{low:+.3f} to {high:+.3f}", saved])
    return lines


def cost_columns(rate: float | None, price_per_hour: float | None) -> dict[str, Callable[[Row], str]]:
    """Columns that depend on this machine and its price: only what was measured or given."""
    found: dict[str, Callable[[Row], str]] = {}
    if rate is not None:
        found["share of this machine's float32 product"] = lambda row: (
            f"{utilisation(row.flops, row.seconds, rate):.0%}" if row.device.startswith("cpu") else "–"
        )
    if price_per_hour is not None:
        found["dollars in all"] = lambda row: f"{dollars(row.seconds, price_per_hour):.5f}"
    return found


STAGE_COLUMNS = (
    "task",
    "backbone",
    "stage",
    "seconds",
    "tokens/s",
    "FLOPs",
    "share of this machine's float32 product",
    "peak memory, MiB",
    "peak on the device, MiB",
    "energy, J",
)


def stage_cells(costs: Stages, rate: float) -> list[list[str]]:
    """What each stage used, its evaluations left out of the seconds; energy is the whole stage's."""
    lines = []
    for (task, backbone), stages in costs.items():
        for stage, cost in stages.items():
            on_processor = cost.device.startswith("cpu")
            share = f"{utilisation(cost.flops, cost.seconds, rate):.0%}" if on_processor else "–"
            tokens = None if cost.tokens is None or cost.seconds <= 0 else cost.tokens / cost.seconds
            line = [task, backbone, stage, f"{cost.seconds:,.2f}", _optional(tokens, "{:,.0f}"), f"{cost.flops:.2e}"]
            peaks = [f"{cost.peak_bytes / MIB:,.0f}", _optional(cost.peak_device_bytes, "{:,.0f}", 1 / MIB)]
            joules = "not measured" if cost.joules is None else f"{cost.joules:,.0f}"
            lines.append([*line, share, *peaks, joules])
    return lines


def program_cells(rows: list[Programmed]) -> list[list[str]]:
    """The body of the table of what was solved by programs."""
    return [[column(row) for column in PROGRAM_COLUMNS.values()] for row in rows]


def markdown(columns: list[str], body: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [columns, ["---"] * len(columns), *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def csv_text(rows: list[Row]) -> str:
    """Every field of every row, unrounded, for spreadsheets and scripts."""
    fields = [*_plain(rows[0])]
    out = io.StringIO()
    writer = csv.DictWriter(out, fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_plain(row) for row in rows)
    return out.getvalue()


def _plain(row: Row) -> dict[str, Any]:
    floors = {"best_floor": row.best_floor[1], "best_floor_name": row.best_floor[0], "below_floor": row.below_floor}
    plain = {name: "never" if value == math.inf else value for name, value in vars(row).items()}
    plain["problem"] = row.problem.name
    del plain["floors"]
    return plain | floors


def reproducible(rows: list[Row]) -> dict[str, Any]:
    """What `metrics/compare.json` holds: task → backbone → method → numbers that no clock has touched."""
    tree: dict[str, Any] = {}
    for row in rows:
        kept = {
            row.problem.metric: row.score,
            "best_floor": row.best_floor[1],
            "trained_parameters": row.trained_parameters,
            "epochs": row.epochs,
            "flops": row.flops,
            "flops_per_epoch": row.flops_per_epoch,
        }
        tree.setdefault(row.task, {}).setdefault(row.backbone, {})[row.method] = kept
    return tree
