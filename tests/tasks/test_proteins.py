import numpy as np
import pytest

from pipeline.tasks.proteins import SIZE, encode


def test_the_papers_alphabet_has_25_letters_and_a_pad() -> None:
    ids = encode("ABCDEFGHIKLMNOPQRSTUVWXYZ", "letters")
    np.testing.assert_array_equal(ids, np.arange(1, 26))
    assert SIZE["letters"] == 26


def test_tapes_alphabet_has_30_ids_and_a_sequence_stands_between_cls_and_sep() -> None:
    assert encode("ABIKZ", "iupac").tolist() == [2, 5, 6, 13, 14, 29, 3]
    assert SIZE["iupac"] == 30


@pytest.mark.parametrize("letter", ["J", "a", "*", " ", "é", "\x00", "\U0001f600"])
@pytest.mark.parametrize("vocabulary", ["letters", "iupac"])
def test_a_letter_outside_the_vocabulary_is_named_with_its_place(letter: str, vocabulary: str) -> None:
    with pytest.raises(ValueError, match="at position 2 is not in the vocabulary") as caught:
        encode(f"AC{letter}D", vocabulary)  # pyright: ignore[reportArgumentType]
    assert repr(letter) in str(caught.value)


def test_an_empty_sequence_is_refused() -> None:
    with pytest.raises(ValueError, match="the sequence is empty"):
        encode("", "letters")
