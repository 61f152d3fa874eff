from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import re

import numpy as np
import pytest

from pipeline.comparison.join import join
from pipeline.comparison.probe_plots import confusion_matrices, layer_sweep
from pipeline.comparison.report import findings, write_comparison
from pipeline.comparison.table import cells, csv_text, difference_cells, headers
from pipeline.costs.record import CostRecord, MethodCost
from pipeline.errors import PermafrostError
from pipeline.identity import write_json
from tests.comparison.results import write_results


@pytest.fixture
def results(tmp_path):
    return write_results(tmp_path)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The same results with their comparison."""
    folder = write_results(tmp_path_factory.mktemp("written"))
    write_comparison(folder, ("bit_xor",), ("b",))
    return folder


def test_rows_join_scores_with_all_that_they_cost(results):
    probe, ridge, finetune = join(results, ("bit_xor",), ("b",))
    assert (probe.score, probe.seconds, probe.flops, probe.flops_per_epoch) == (0.8, 8.0, 800, 50)
    assert (ridge.score, ridge.seconds, ridge.flops, ridge.seconds_per_epoch) == (0.6, 7.0, 700, None)
    assert (finetune.score, finetune.seconds, finetune.flops) == (0.94, 40.0, 8000)
    assert finetune.epochs == 10
    assert finetune.flops_per_epoch == 800
    assert probe.break_even_epochs == pytest.approx(6.0 / (3.5 - 0.5))
    assert probe.break_even_probes == pytest.approx(6.0 / (40.0 - 2.0))
    assert probe.amortised_seconds == pytest.approx(6.0 / 10 + 2.0)
    assert finetune.break_even_epochs is None
    assert [(row.low, row.high) for row in (probe, ridge, finetune)] == [(0.7, 0.88), (0.47, 0.73), (0.86, 0.98)]
    assert probe.best_floor == ("linear model on raw inputs", 0.9)
    assert probe.below_floor
    assert not finetune.below_floor


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.91, 0.98, "above the best floor"),
        (0.9, 0.98, "not told apart from the best floor"),
        (0.5, 0.9, "not told apart from the best floor"),
        (0.5, 0.89, "below the best floor"),
    ],
)
def test_a_score_is_above_or_below_the_floor_only_with_its_whole_interval(results, low, high, said):
    row = dataclasses.replace(join(results, ("bit_xor",), ("b",))[0], score=(low + high) / 2, low=low, high=high)
    line, *others = findings([row])
    assert f"with {row.score:.3f}, {said}, 0.900 (linear model on raw inputs)" in line
    standing = "" if said.startswith("above") else f"bit_xor: {row.standing} the floor are logistic probe on b."
    assert others == [standing][: bool(standing)]


def test_what_was_found_names_who_stands_where_and_how_much_longer_an_epoch_is(results):
    assert findings(join(results, ("bit_xor",), ("b",))) == [
        "bit_xor: best is full FPT fine-tune on b with 0.940, not told apart from the best floor, 0.900 "
        "(linear model on raw inputs).",
        "bit_xor: below the floor are all but full FPT fine-tune on b.",
        "bit_xor: not told apart from the floor are full FPT fine-tune on b.",
        "bit_xor: an epoch of the fine-tune takes 7 to 7 times an epoch on the cache.",
    ]


def test_seconds_saved_are_the_fine_tunes_beyond_the_probes(results):
    logistic, ridge = difference_cells(join(results, ("bit_xor",), ("b",)))
    assert (logistic[3], logistic[5]) == ("+0.140", "32.0")
    assert (ridge[3], ridge[5]) == ("+0.340", "33.0")


def test_a_cache_that_never_pays_says_so_and_uses_are_counted_whole(results):
    row, *_ = join(results, ("bit_xor",), ("b",))
    named = dict(zip(headers([row]), cells([row])[0], strict=True))
    assert (named["break-even, FPT epochs"], named["break-even, probes"]) == ("2", "1")
    never = dataclasses.replace(row, break_even_epochs=math.inf, break_even_probes=2.0)
    named = dict(zip(headers([never]), cells([never])[0], strict=True))
    assert (named["break-even, FPT epochs"], named["break-even, probes"]) == ("never", "2")
    (line,) = csv.DictReader(io.StringIO(csv_text([never])))
    assert (line["break_even_epochs"], line["break_even_probes"]) == ("never", "2.0")


def test_a_confusion_matrix_has_the_true_class_in_its_rows():
    figure = confusion_matrices({("t", "b"): {"confusion": [[3, 1], [0, 4]], "method": "ridge", "layer": "2"}})
    assert figure is not None
    axes = figure.axes[0]
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("true class", "class given")
    assert axes.get_title() == "t, b\nridge probe, layer 2"
    np.testing.assert_array_equal(axes.get_images()[0].get_array(), [[0.75, 0.25], [0.0, 1.0]])


def test_a_probe_that_was_skipped_has_no_row(results):
    path = results / "metrics/probe/bit_xor-b.json"
    metrics = json.loads(path.read_text())
    metrics["methods"]["ridge"] |= {"test_accuracy": None, "status": "skipped: single class"}
    write_json(path, metrics)
    assert [row.method for row in join(results, ("bit_xor",), ("b",))] == ["logistic", "finetune"]


def test_a_missing_result_is_named_with_the_command_that_makes_it(results):
    (results / "metrics/probe/bit_xor-b.json").unlink()
    with pytest.raises(PermafrostError, match=r"bit_xor-b.json is missing\s+to mend: dvc repro probe@bit_xor-b"):
        join(results, ("bit_xor",), ("b",))


def test_every_form_of_the_table_says_the_same(written):
    table = (written / "report/table.md").read_text()
    assert "| bit_xor | b | logistic probe | 0.800 ▼ |" in table
    assert "| bit_xor | b | ridge probe (not converged) | 0.600 ▼ |" in table
    assert "0.940 |" in table
    assert "| xor | looped transformer, programmed | 1.000 | 64 | 4 × 98 | 13 | 1.00e+03 |" in table
    assert "gcd" not in table
    lines = list(csv.DictReader(io.StringIO((written / "report/table.csv").read_text())))
    assert [line["below_floor"] for line in lines] == ["True", "True", "False"]
    metrics = json.loads((written / "metrics/compare.json").read_text())
    assert metrics["bit_xor"]["b"]["logistic"]["accuracy"] == 0.8


def test_the_report_says_how_each_task_was_made_and_what_was_counted(results, written):
    floors = "linear model on raw inputs 0.900, majority class 0.100"
    counts = "bad rows 3, dropped as too long train 2"
    line = f"| bit_xor | split same | train 100, validation 9, test 50 | {floors} | test in train 7 | {counts} |"
    assert line in (written / "report/table.md").read_text()
    assert "dropped as too long train 2" in (written / "report/index.html").read_text()
    (results / "metrics/tasks/bit_xor.json").unlink()
    with pytest.raises(PermafrostError, match=r"bit_xor.json is missing\s+to mend: dvc repro prepare@bit_xor"):
        write_comparison(results, ("bit_xor",), ("b",))


def test_metrics_hold_nothing_that_a_clock_says(results, written):
    CostRecord("cache", "bit_xor-b", 60.0, 600, 1, "cpu", 100).write(results / "data/cost")
    write_comparison(results, ("bit_xor",), ("b",))
    assert "62.0" not in (written / "report/table.md").read_text()
    assert "62.0" in (results / "report/table.md").read_text()
    assert (results / "metrics/compare.json").read_bytes() == (written / "metrics/compare.json").read_bytes()


def test_money_is_named_only_at_a_price_that_was_given(results, written):
    assert "dollars" not in (written / "report/table.md").read_text()
    write_comparison(results, ("bit_xor",), ("b",), price_per_hour=3.6)
    assert "| 0.04000 |" in (results / "report/table.md").read_text()


def test_the_report_needs_no_network_and_names_what_is_below_its_floor(written):
    page = (written / "report/index.html").read_text()
    assert not re.findall(r"""\s(?:src|href)=["']?(?!data:|#)[^"'>]+""", page)
    assert not re.findall(r"url\((?!#)", page)
    assert "below the floor are all but full FPT fine-tune on b" in page
    pictures = {path.stem for path in (written / "report").glob("*.png")}
    assert pictures == {
        "accuracy-against-cost",
        "layer-sweep",
        "data-curves",
        "learning-curves",
        "time-per-stage",
        "confusion",
    }
    assert page.count("<svg") == len(pictures)


def test_each_stage_shows_what_it_used_and_says_what_was_not_measured(results):
    record = CostRecord("cache", "bit_xor-b", 6.0, 600, 3 << 20, "cpu", 100, tokens=900, joules=41.6)
    record.write(results / "data/cost")
    record = CostRecord("finetune", "bit_xor-b", 40.0, 8000, 1, "cuda H", 100, tokens=80, peak_device_bytes=5 << 20)
    record.write(results / "data/cost")
    write_comparison(results, ("bit_xor",), ("b",))
    lines = (results / "report/table.md").read_text().splitlines()
    cache, probe, tuned = (
        next(line for line in lines if line.startswith(f"| bit_xor | b | {stage} |")).split(" | ")[3:]
        for stage in ("cache", "probe", "finetune")
    )
    assert (cache[0], cache[1], cache[4], cache[6]) == ("6.00", "150", "3", "42 |")
    assert (probe[0], probe[2]) == ("5.00", "5.00e+02"), "both methods, not the first one alone"
    assert (probe[1], probe[6]) == ("–", "not measured |")
    assert (tuned[3], tuned[5], tuned[6]) == ("–", "5", "not measured |")


def test_attention_maps_stand_in_the_page_itself(results):
    place = results / "data/attention/bit_xor-b"
    place.mkdir(parents=True)
    (place / "first-layer.png").write_bytes(b"picture")
    write_comparison(results, ("bit_xor",), ("b",))
    page = (results / "report/index.html").read_text()
    assert 'src="data:image/png;base64,cGljdHVyZQ=="' in page
    assert 'alt="Attention of the fine-tuned network on bit_xor with b, first layer"' in page


def test_one_layer_makes_no_sweep(results):
    path = results / "metrics/probe/bit_xor-b.json"
    metrics = json.loads(path.read_text())
    del metrics["layers"]["1"]
    write_json(path, metrics)
    write_comparison(results, ("bit_xor",), ("b",))
    assert not (results / "report/layer-sweep.png").exists()


def test_names_are_escaped(results):
    for path in results.rglob("*bit_xor-b*"):
        path.rename(path.with_name(path.name.replace("bit_xor-b", "t-<i>")))
    (results / "metrics/tasks/bit_xor.json").rename(results / "metrics/tasks/t.json")
    write_comparison(results, ("t",), ("<i>",))
    assert "<i>" not in re.sub(r"(?s)<svg.*?</svg>", "", (results / "report/index.html").read_text())


def test_what_each_method_cost_survives_its_file(results):
    record = CostRecord("probe", "k", 1.0, 2, 3, "cpu", 4, 0.5, {"ridge": MethodCost(1.0, 2, None)})
    record.write(results / "data/cost")
    assert json.loads((results / "data/cost/probe-k.json").read_text())["methods"]["ridge"]["flops"] == 2


def test_layers_stand_in_the_order_of_their_depth_whatever_the_order_of_the_file():
    layers = {name: {"logistic": {"test_accuracy": 0.5}} for name in ("0", "1", "10", "2", "final")}
    figure = layer_sweep({("t", "b"): {"layers": layers, "method": "logistic"}})
    assert figure is not None
    assert list(figure.axes[0].get_lines()[0].get_xdata()) == ["0", "1", "2", "10", "final"]


def test_each_readout_has_a_line_of_its_own():
    names = ("10:last", "10:mean", "final:last", "final:mean", "2:last", "2:mean")
    layers = {name: {"logistic": {"test_accuracy": number / 10}} for number, name in enumerate(names)}
    figure = layer_sweep({("t", "b"): {"layers": layers, "method": "logistic"}})
    assert figure is not None
    drawn = {line.get_label(): dict(zip(*line.get_data(), strict=True)) for line in figure.axes[0].get_lines()}
    assert drawn == {
        "b, last": {"2": 0.4, "10": 0.0, "final": 0.2},
        "b, mean": {"2": 0.5, "10": 0.1, "final": 0.3},
    }


@pytest.mark.parametrize(("backbones", "readouts"), [(2, ("last", "mean", "max")), (8, ("mean",)), (1, ("mean",))])
@pytest.mark.parametrize("tasks", [1, 4])
def test_a_legend_stands_within_its_picture(tasks, backbones, readouts):
    layers = {f"{n}:{readout}": {"logistic": {"test_accuracy": 0.5}} for n in (0, 1) for readout in readouts}
    names = [f"a backbone of number {number}" for number in range(backbones)]
    one = {"layers": layers, "method": "logistic"}
    figure = layer_sweep({(f"task {task}", name): one for task in range(tasks) for name in names})
    assert figure is not None
    figure.draw_without_rendering()
    box, size = figure.legends[0].get_window_extent(), figure.bbox
    assert size.x0 <= box.x0 <= box.x1 <= size.x1
    assert size.y0 <= box.y0 <= box.y1 <= size.y1
    below = [axes.get_tightbbox() for axes in figure.axes]
    assert all(drawn is not None and box.y1 <= drawn.y0 + 1 for drawn in below)
