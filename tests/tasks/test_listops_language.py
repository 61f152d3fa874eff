import pytest

from pipeline.tasks.listops_language import IDS, BadExpression, evaluate, parse


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("7", 7),
        ("( ( ( [MAX 2 ) 9 ) ] )", 9),
        ("( ( ( [MIN 2 ) 9 ) ] )", 2),
        ("[SM 9 8 7 ]", 4),
        ("[MED 1 2 ]", 1),  # 1.5, halves are rounded down
        ("[MED 9 1 5 ]", 5),
        ("[MED 1 2 8 9 ]", 5),
        ("[MAX 1 [MIN 7 [SM 9 9 ] ] 3 ]", 7),
    ],
)
def test_the_value_of_an_expression(source: str, value: int) -> None:
    assert evaluate(parse(source)) == value


def test_ids_are_fixed_and_leave_0_to_the_pad() -> None:
    assert [IDS[name] for name in ("0", "9", "[MIN", "[MAX", "[MED", "[SM", "]")] == [1, 10, 11, 12, 13, 14, 15]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("[MAX 2 9", "1 lists are not closed"),
        ("2 9", "2 values where one whole expression is wanted"),
        ("", "0 values where one whole expression is wanted"),
        ("] 2", "token 0: ']' closes nothing"),
        ("[MAX ]", "token 1: ']' closes an empty list"),
        ("[AVG 2 3 ]", "unknown token '\\[AVG'"),
        ("[MAX 2 12 ]", "unknown token '12'"),
        ("( ( [MAX 2 ) ]", "2 opening and 1 closing parentheses"),
    ],
)
def test_what_does_not_parse_is_refused_with_the_place(source: str, reason: str) -> None:
    with pytest.raises(BadExpression, match=reason):
        evaluate(parse(source))


def test_an_id_without_meaning_is_refused() -> None:
    with pytest.raises(BadExpression, match="token 1: id 0 has no meaning"):
        evaluate([11, 0, 15])
