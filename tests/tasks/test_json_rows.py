import json
from pathlib import Path

import pytest

from pipeline.tasks import json_rows
from pipeline.tasks.faults import BrokenSource
from pipeline.tasks.json_rows import json_objects

ROWS = [{"primary": "ÄMK" * 5, "n": [1, -2.5e3, None], "s": 'a"]},[\\'}, {}, {"é": {"deep": [[]]}}]


@pytest.fixture(params=[1, 7, 2**20])
def piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(json_rows, "PIECE", request.param)
    return request.param


@pytest.mark.parametrize("indent", [None, 2])
def test_members_are_those_of_the_whole_file_whatever_the_piece(tmp_path: Path, piece: int, indent: int | None) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(ROWS, indent=indent, ensure_ascii=False), encoding="utf-8")
    assert list(json_objects(path)) == ROWS
    path.write_text(" [ ] ")
    assert list(json_objects(path)) == []


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'[{"a": 1}, {"b": 2', "row 1: the file ends, or is no JSON, within this row"),
        (b'[{"a": 1}, {"b": \xff\xfe}]', "not UTF-8"),
        (b'[{"a": 1} {"b": 2}]', "row 1: '{' where ',' or ']' is wanted"),
        (b'[{"a": 1}', "row 1: the list is not closed"),
        (b'{"a": 1}', "row 0: not a JSON list"),
        (b"", "row 0: not a JSON list"),
        (b"[" * 100_000, "row 0: maximum recursion depth"),
        (b"[nonsense]", "row 0: the file ends, or is no JSON"),
    ],
)
def test_what_is_no_list_of_objects_is_named_with_the_row(
    tmp_path: Path, piece: int, content: bytes, reason: str
) -> None:
    path = tmp_path / "rows.json"
    path.write_bytes(content)
    with pytest.raises(BrokenSource, match=reason) as caught:
        list(json_objects(path))
    assert str(path) in str(caught.value)
