"""A task of numbers beside a task of classes: R² and accuracy are named, and never share an axis."""

from __future__ import annotations

import csv
import io
import json

import pytest

from pipeline.comparison.join import join
from pipeline.comparison.plots import learning_curves
from pipeline.comparison.report import write_comparison
from tests.comparison.results import add_regression, write_results

BOTH = ("bit_xor", "rain")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A task of each problem with their comparison."""
    folder = add_regression(write_results(tmp_path_factory.mktemp("both")))
    write_comparison(folder, BOTH, ("b",))
    return folder


def test_rows_have_the_score_of_their_task_with_its_interval(written):
    probe, tuned = (row for row in join(written, BOTH, ("b",)) if row.task == "rain")
    assert (probe.method, probe.problem.name, probe.score, probe.low, probe.high) == (
        "ridge",
        "regression",
        0.75,
        0.6,
        0.85,
    )
    assert not probe.below_floor
    assert (tuned.score, tuned.below_floor) == (-0.5, True)


def test_every_form_of_the_table_names_the_score(written):
    table = (written / "report/table.md").read_text()
    assert table.splitlines()[0].split(" | ")[3] == "test accuracy or R²"
    assert "| rain | b | ridge probe | R² 0.750 | 0.600–0.850 | R² 0.700 (linear model on raw inputs) |" in table
    assert "| rain | b | full FPT fine-tune | R² -0.500 ▼ |" in table
    assert "| bit_xor | b | logistic probe | 0.800 ▼ |" in table
    assert "| rain | b | ridge probe | R² -1.250 |" in table
    assert "linear model on raw inputs R² 0.700 (MSE 1.25), train mean R² -0.010 (MSE 4.2)" in table
    lines = list(csv.DictReader(io.StringIO((written / "report/table.csv").read_text())))
    assert [line["problem"] for line in lines] == ["classification"] * 3 + ["regression"] * 2
    assert lines[3]["score"] == "0.75"
    metrics = json.loads((written / "metrics/compare.json").read_text())
    assert metrics["rain"]["b"]["ridge"]["r2"] == 0.75
    assert "accuracy" not in metrics["rain"]["b"]["ridge"]
    assert metrics["bit_xor"]["b"]["logistic"]["accuracy"] == 0.8


def test_the_page_explains_the_score_and_only_classes_have_a_matrix(written):
    page = (written / "report/index.html").read_text()
    assert "<dt>R²</dt>" in page
    assert "rain: best is ridge probe on b with R² 0.750, not told apart from the best floor, R² 0.700" in page
    assert (written / "report/confusion.png").exists()
    assert "Test accuracy or R² against the seconds it took" in page


def test_each_axis_is_named_after_its_own_score(written):
    curves = learning_curves(written / "metrics/curves", BOTH, ("b",))
    assert [axes.get_ylabel() for axes in curves.axes] == ["validation accuracy", "validation R²"]
