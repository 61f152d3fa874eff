"""compare: set what each method scored beside what it cost."""

from __future__ import annotations

from pathlib import Path

import click

from stages.command import PARAMS, reports_errors


@click.command()
@reports_errors
def main() -> None:
    """Write report/ (HTML, Markdown, CSV, PNG) and metrics/compare.json for the whole grid."""
    from pipeline.comparison.report import write_comparison
    from pipeline.comparison.table import COLUMNS, cells
    from pipeline.params import Params
    from stages.grid import Grid

    grid = Params(PARAMS).section("grid", Grid)
    rows = write_comparison(Path(), grid.tasks, grid.backbones)
    print_table(list(COLUMNS), cells(rows))


def print_table(columns: list[str], body: list[list[str]]) -> None:
    """The table on the terminal; in a file or pipe as wide as it is."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(*columns)
    for line in body:
        table.add_row(*line)
    console.print(table, width=None if console.is_terminal else 240)


if __name__ == "__main__":
    main()
