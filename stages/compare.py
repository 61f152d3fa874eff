"""compare: set what each method scored beside what it cost."""

from __future__ import annotations

from pathlib import Path

import click

from stages.command import PARAMS, reports_errors


@click.command()
@click.option(
    "--price-per-hour",
    type=click.FloatRange(min=0),
    envvar="PERMAFROST_PRICE_PER_HOUR",
    show_envvar=True,
    help="Dollars an hour of this machine; without it the report names no money.",
)
@reports_errors
def main(price_per_hour: float | None) -> None:
    """Write report/ (HTML, Markdown, CSV, PNG) and metrics/compare.json for the whole grid."""
    from pipeline.comparison.report import write_comparison
    from pipeline.comparison.table import SHORT, cells, headers
    from pipeline.params import Params
    from stages.grid import Grid

    params = Params(PARAMS)
    grid = params.section("grid", Grid)
    sources = {name: params.plain("backbones", name, "source") for name in grid.backbones}
    rows = write_comparison(Path(), grid.tasks, grid.backbones, price_per_hour, sources)
    print_table(headers(rows, SHORT), cells(rows, SHORT))
    click.echo("▼ below a trivial predictor. All columns, pictures and how to read them: report/index.html")


def print_table(columns: list[str], body: list[list[str]]) -> None:
    """The table on the terminal; in a file or pipe as wide as it needs to be."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(*columns, box=None, header_style="bold")
    for line in body:
        table.add_row(*line)
    (console if console.is_terminal else Console(width=160)).print(table)


if __name__ == "__main__":
    main()
