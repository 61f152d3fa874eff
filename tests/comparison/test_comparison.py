from __future__ import annotations

import csv
import io
import json
import re

import pytest

from pipeline.comparison.join import join, wilson_interval
from pipeline.comparison.report import write_comparison
from pipeline.costs.record import CostRecord
from pipeline.errors import PermafrostError
from pipeline.identity import write_json

FLOORS = {"majority class": 0.1, "linear model on raw inputs": 0.9}


@pytest.fixture
def results(tmp_path):
    """Results of one task and one backbone whose every number is known."""

    def cost(stage, seconds, flops, per_epoch=None):
        CostRecord(stage, "t-b", seconds, flops, 1, "cpu", 100, per_epoch).write(tmp_path / "data/cost")

    cost("cache", 6.0, 600)
    cost("probe", 2.0, 200, 0.5)
    cost("finetune", 40.0, 8000, 3.5)
    common = {"test_answers": 50, "floors": FLOORS}
    write_json(
        tmp_path / "metrics/probe/t-b.json",
        {"test_accuracy": 0.8, "trained_parameters": 12, "epochs": 4, **common},
    )
    write_json(
        tmp_path / "metrics/finetune/t-b.json",
        {"test_accuracy": 0.94, "trained_parameters": 34, "examples_seen": 1000, **common},
    )
    program = {"name": "xor", "kind": "task", "accuracy": 1.0, "examples": 64, "layers": 4, "width": 98, "steps": 13}
    other = {"name": "gcd", "kind": "program"}
    write_json(tmp_path / "metrics/programs.json", [other, {**program, "flops_per_example": 1000}])
    (tmp_path / "metrics/curves").mkdir()
    (tmp_path / "metrics/curves/t-b.csv").write_text("step,validation_accuracy\n1,0.5\n2,0.75\n")
    return tmp_path


def test_rows_join_scores_with_all_that_they_cost(results):
    probe, finetune = join(results, ("t",), ("b",))
    assert (probe.accuracy, probe.seconds, probe.flops, probe.flops_per_epoch) == (0.8, 8.0, 800, 50.0)
    assert (finetune.accuracy, finetune.seconds, finetune.flops) == (0.94, 40.0, 8000)
    assert finetune.epochs == 10
    assert finetune.flops_per_epoch == 800
    assert probe.break_even_epochs == pytest.approx(6.0 / (3.5 - 0.5))
    assert finetune.break_even_epochs is None
    assert probe.best_floor == ("linear model on raw inputs", 0.9)
    assert probe.below_floor
    assert not finetune.below_floor


def test_the_interval_is_wilsons():
    assert wilson_interval(0.5, 100) == pytest.approx((0.4038, 0.5962), abs=1e-4)
    assert wilson_interval(1.0, 50)[1] == pytest.approx(1.0)
    assert wilson_interval(0.0, 50)[0] == pytest.approx(0.0)


def test_a_missing_result_is_named_with_the_command_that_makes_it(results):
    (results / "metrics/probe/t-b.json").unlink()
    with pytest.raises(PermafrostError, match=r"probe/t-b.json is missing\s+to mend: dvc repro probe@t-b"):
        join(results, ("t",), ("b",))


def test_every_form_of_the_table_says_the_same(results):
    write_comparison(results, ("t",), ("b",))
    table = (results / "report/table.md").read_text()
    assert "| t | b | probe on cached features | 0.800 ▼ |" in table
    assert "0.940 |" in table
    assert "| xor | looped transformer, programmed | 1.000 | 64 | 4 × 98 | 13 | 1.00e+03 |" in table
    assert "gcd" not in table
    lines = list(csv.DictReader(io.StringIO((results / "report/table.csv").read_text())))
    assert [line["below_floor"] for line in lines] == ["True", "False"]
    metrics = json.loads((results / "metrics/compare.json").read_text())
    assert metrics["t"]["b"]["probe"]["accuracy"] == 0.8


def test_metrics_hold_nothing_that_a_clock_says(results):
    write_comparison(results, ("t",), ("b",))
    before = (results / "metrics/compare.json").read_bytes()
    CostRecord("cache", "t-b", 60.0, 600, 1, "cpu", 100).write(results / "data/cost")
    write_comparison(results, ("t",), ("b",))
    assert (results / "metrics/compare.json").read_bytes() == before


def test_the_report_needs_no_network_and_names_what_is_below_its_floor(results):
    write_comparison(results, ("t",), ("b",))
    page = (results / "report/index.html").read_text()
    assert not re.findall(r"""(?:src|href)=["']?(?!data:|#)[^"'>]+""", page)
    assert not re.findall(r"url\((?!#)", page)
    assert "below the floor are probe on cached features on b" in page
    assert page.count("<svg") == 2
    for name in ("accuracy-against-cost", "learning-curves"):
        assert (results / f"report/{name}.png").read_bytes().startswith(b"\x89PNG")


def test_names_are_escaped(results):
    for path in results.rglob("*t-b*"):
        path.rename(path.with_name(path.name.replace("t-b", "t-<i>")))
    write_comparison(results, ("t",), ("<i>",))
    assert "<td><i></td>" not in (results / "report/index.html").read_text()
