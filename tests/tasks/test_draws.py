import numpy as np
import pytest

from pipeline.tasks import draws


def test_a_rows_words_do_not_depend_on_the_rows_drawn_with_it() -> None:
    rows = np.array([7, 3, 4, 5, 100, 0])
    together = draws.words(3, "stream", rows, 6)
    for place, row in enumerate(rows):
        np.testing.assert_array_equal(draws.words(3, "stream", np.array([row]), 6)[0], together[place])


def test_seeds_streams_and_rows_have_words_of_their_own() -> None:
    rows = np.arange(50)
    drawn = [draws.words(seed, name, rows, 5) for seed in (0, 1) for name in ("train", "test")]
    assert len(np.unique(np.concatenate(drawn))) == 4 * 50 * 5


def test_units_and_integers_are_even() -> None:
    drawn = draws.words(0, "even", np.arange(5000), 2)
    assert draws.unit(drawn).min() >= 0
    assert draws.unit(drawn).max() < 1
    counts = np.bincount(draws.below(drawn, 10).ravel(), minlength=10)
    assert counts == pytest.approx(1000, rel=0.12)


def test_a_permutation_has_every_number_once() -> None:
    assert sorted(draws.permutation(0, "p", 1000)) == list(range(1000))
    assert list(draws.permutation(0, "p", 1000)) != list(draws.permutation(1, "p", 1000))


def test_each_row_is_given_to_a_split_alone_and_the_shares_hold_on_average() -> None:
    whole = draws.parts(0, np.arange(20_000), 0.1, 0.2)
    assert np.bincount(whole) / 20_000 == pytest.approx([0.7, 0.1, 0.2], abs=0.01)
    np.testing.assert_array_equal(draws.parts(0, np.arange(777, 900), 0.1, 0.2), whole[777:900])
    assert not draws.parts(0, np.arange(100), 0.0, 0.0).any()
