from __future__ import annotations

import dataclasses

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
    cells = published_cells(rows, published(), {"b": "package"})
    column = {name: [line[place] for line in cells] for place, name in enumerate(COLUMNS)}
    assert set(column["task"]) == {"bit_xor"}
    assert all("b, " in cell or cell == "–" for cell in column["measured here"])
    assert not any("b, " in cell for cell in column["published"])
    (probe,) = (line for line in cells if line[1].startswith("output layer") and "logistic" in line[5])
    assert probe[2] == "0.560"
    assert probe[6].startswith("+0.240 [")
    (unlike,) = (line for line in cells if line[1] == "fully trained LSTM")
    assert unlike[5:] == ["–", "–"]


def beside(rows, arm, source):
    """The methods of the measured rows that stand beside a published arm."""
    cells = published_cells(rows, published(), {"b": source})
    return [line[5].split(", ")[1].split(":")[0] for line in cells if line[1] == arm and line[5] != "–"]


def test_only_like_stands_beside_like(tmp_path):
    rows = join(write_results(tmp_path), ("bit_xor",), ("b",))
    rows += [dataclasses.replace(rows[0], method=name) for name in ("knn", "head2toe", "sgd")]
    linear = ["logistic probe", "ridge probe", "the paper's probe (Adam)"]
    assert beside(rows, "output layer alone, GPT-2", "package") == linear
    assert beside(rows, "output layer alone, GPT-2", "random") == []
    assert beside(rows, "FPT, GPT-2", "hub") == beside(rows, "FPT, random weights", "random") == ["full FPT fine-tune"]
    assert beside(rows, "FPT, GPT-2", "random") == beside(rows, "FPT, random weights", "path") == []
    for source in ("lstm", "looped"):
        assert all(line[5] == "–" for line in published_cells(rows, published(), {"b": source}))


def test_what_can_be_set_beside_ours_says_which_weights_it_has():
    assert all((one.weights is None) == (one.ours is None) for one in published())
    assert {one.arm for one in published() if one.weights == "random"} == {"FPT, random weights", "frozen random"}
