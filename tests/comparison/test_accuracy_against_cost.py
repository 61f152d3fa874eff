from __future__ import annotations

import itertools

import pytest

from pipeline.comparison.accuracy_against_cost import GAP, accuracy_against_cost, limits, name_places, spread_apart
from pipeline.comparison.join import join
from tests.comparison.results import add_regression, write_results


@pytest.fixture
def rows(tmp_path):
    return join(add_regression(write_results(tmp_path)), ("bit_xor", "rain"), ("b",))


def test_a_panel_has_one_task_its_own_score_and_its_floor(rows):
    figure = accuracy_against_cost(rows)
    classes, numbers = figure.axes
    assert (classes.get_ylabel(), numbers.get_ylabel()) == ("test accuracy", "test R²")
    assert "best floor R² 0.700, linear model on raw inputs" in numbers.get_title()
    assert [text.get_text() for text in numbers.texts] == ["ridge 0.750", "fine-tune -0.500"]


def test_every_marker_stands_where_it_was_measured(rows):
    for axes, task in zip(accuracy_against_cost(rows).axes, ("bit_xor", "rain"), strict=True):
        drawn = {tuple(text.xy) for text in axes.texts}
        markers = {(*line.get_xdata(), *line.get_ydata()) for line in axes.get_lines() if line.get_marker() != "None"}
        assert drawn == markers == {(row.seconds, row.score) for row in rows if row.task == task}


def test_markers_intervals_and_floor_are_within_the_panel(rows):
    rows = [row for row in rows if row.task == "rain"]
    left, right, low, high = limits(rows)
    assert all(left < row.seconds < right and low < row.low and row.high < high for row in rows)
    assert low < rows[0].best_floor[1] < high
    assert right / left >= 9.9


def test_names_stand_apart_in_the_order_of_their_scores(rows):
    places = spread_apart([0.5, 0.51, 0.99, 1.0, 0.0, 0.505], GAP)
    ordered = [places[index] for index in (4, 0, 5, 1, 2, 3)]
    assert all(after - before >= GAP - 1e-9 for before, after in itertools.pairwise(ordered))
    assert min(places) > 0
    assert max(places) < 1
    assert spread_apart([0.2, 0.8], GAP) == [0.2, 0.8]


def test_a_name_faces_its_marker(rows):
    rows = [row for row in rows if row.task == "rain"]
    (_, _, ridge), (_, _, tuned) = name_places(rows, limits(rows))
    assert (ridge, tuned) == ("left", "right")
