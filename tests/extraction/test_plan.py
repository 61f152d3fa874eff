from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pipeline.extraction.plan import batches, distinct_rows


def hashes(*numbers: int) -> np.ndarray:
    return np.array([[0, number] for number in numbers], dtype=np.uint64).reshape(-1, 2)


def test_equal_inputs_are_one_row_in_order_of_appearance():
    first, rows = distinct_rows({"train": hashes(9, 4, 9), "validation": hashes(), "test": hashes(4, 1)})
    assert first.tolist() == [0, 1, 4]
    assert rows["train"].tolist() == [0, 1, 0]
    assert rows["validation"].tolist() == []
    assert rows["test"].tolist() == [1, 2]


def test_no_examples_are_no_rows():
    first, rows = distinct_rows({"train": hashes(), "test": hashes()})
    assert len(first) == 0
    assert all(len(part) == 0 for part in rows.values())


@given(st.lists(st.lists(st.integers(0, 6), max_size=12), min_size=1, max_size=3))
def test_rows_lead_back_to_equal_inputs(splits):
    named = {str(index): hashes(*numbers) for index, numbers in enumerate(splits)}
    first, rows = distinct_rows(named)
    together = [number for numbers in splits for number in numbers]
    assert len(first) == len(set(together))
    assert list(first) == sorted(first)
    for index, numbers in enumerate(splits):
        assert [together[first[row]] for row in rows[str(index)]] == numbers


@given(
    lengths=hnp.arrays(np.int32, st.integers(0, 60), elements=st.integers(0, 40)),
    batch_tokens=st.integers(1, 200),
)
def test_batches_hold_every_row_once_within_the_budget_longest_first(lengths, batch_tokens):
    found = batches(lengths, batch_tokens)
    assert sorted(row for batch in found for row in batch) == list(range(len(lengths)))
    longest = [max(lengths[batch]) for batch in found]
    assert longest == sorted(longest, reverse=True)
    for batch in found:
        assert len(batch) == 1 or len(batch) * max(1, max(lengths[batch])) <= batch_tokens


def test_rows_of_equal_length_stay_in_order():
    assert [batch.tolist() for batch in batches(np.full(7, 5, np.int32), 15)] == [[0, 1, 2], [3, 4, 5], [6]]
