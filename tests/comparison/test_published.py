from __future__ import annotations

import pytest

from pipeline.comparison.join import join
from pipeline.comparison.published import COLUMNS, published, published_cells
from tests.comparison.results import write_results


def test_every_value_has_a_source_and_is_a_share():
    found = published()
    assert {one.reliability for one in found} <= {"author", "second_hand", "recollection"}
    assert all(0 <= one.accuracy <= 1 and "arXiv" in one.paper and one.place for one in found)
    assert len({(one.task, one.arm, one.paper, one.place) for one in found}) == len(found)


def test_known_values_are_what_the_papers_print():
    values = {(one.task, one.arm): one for one in published()}
    assert values["listops", "output layer on cached features, GPT-2"].accuracy == pytest.approx(0.328)
    replication = values["cifar10_lra", "frozen pretrained"]
    assert (replication.accuracy, replication.spread) == pytest.approx((0.547, 0.014))
    assert values["cifar10", "FPT, GPT-2"].accuracy == pytest.approx(0.682)
    assert values["cifar10", "FPT, GPT-2 with 36 layers"].accuracy == pytest.approx(0.721)


def test_measured_and_published_never_share_a_column(tmp_path):
    rows = join(write_results(tmp_path), ("bit_xor",), ("b",))
    cells = published_cells(rows, published())
    column = {name: [line[place] for line in cells] for place, name in enumerate(COLUMNS)}
    assert set(column["task"]) == {"bit_xor"}
    assert all("b, " in cell or cell == "–" for cell in column["measured here"])
    assert not any("b, " in cell for cell in column["published"])
    (probe,) = (line for line in cells if line[1].startswith("output layer") and "logistic" in line[5])
    assert probe[2] == "0.560"
    assert probe[6].startswith("+0.240 [")
    (unlike,) = (line for line in cells if line[1] == "fully trained LSTM")
    assert unlike[5:] == ["–", "–"]
