import gzip
import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from pipeline.tasks.faults import BadRows, BrokenSource
from pipeline.tasks.text_files import Columns, read_rows

COLUMNS = Columns("text", "label")
ROWS = [("plain", "a"), ("with, comma", "b"), ('"quoted"', "a"), ("two\nlines", "b"), ("Ä 漢字 😀", "ü"), ("", "a")]


def written(folder: Path, form: str) -> Path:
    path = folder / f"rows.{form}"
    if form == "parquet":
        columns = {"id": range(len(ROWS)), "text": [text for text, _ in ROWS], "label": [label for _, label in ROWS]}
        pyarrow.parquet.write_table(pyarrow.table(columns), path)
        return path
    delimiter = "\t" if "tsv" in form else ","
    if "jsonl" in form:
        content = "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in ROWS)
    else:
        cells = [("text", "label"), *ROWS]
        quoted = [['"' + cell.replace('"', '""') + '"' for cell in row] for row in cells]
        content = "".join(delimiter.join(row) + "\r\n" for row in quoted)
    raw = content.encode()
    path.write_bytes(gzip.compress(raw) if form.endswith("gz") else raw)
    return path


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "csv.gz", "jsonl.gz", "parquet"])
def test_every_format_gives_the_rows_that_were_written(tmp_path: Path, form: str) -> None:
    assert list(read_rows(written(tmp_path, form), COLUMNS, BadRows("stop"))) == ROWS


def test_a_byte_order_mark_is_no_part_of_the_header(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b"\xef\xbb\xbftext,label\nhello,1\n")
    assert list(read_rows(path, COLUMNS, BadRows("stop"))) == [("hello", "1")]


def test_empty_lines_are_no_rows(tmp_path: Path) -> None:
    for form, content in (("csv", b"text,label\n\na,1\n\n"), ("jsonl", b'\n{"text": "a", "label": "1"}\n\n')):
        path = tmp_path / f"rows.{form}"
        path.write_bytes(content)
        assert list(read_rows(path, COLUMNS, BadRows("stop"))) == [("a", "1")]


GOOD = b'{"text": "x", "label": 1}\n'
BAD = [
    ("csv", b"text,label\nok,1\nbad \xff\xfe,1\nok,2\n", "line 3: not UTF-8 at character 4"),
    ("csv", b"text,label\nok,1\nonly one column\nok,2\n", "line 3: 1 of 2 columns"),
    ("csv", b"text,label\nok,1\na,b,c\nok,2\n", "line 3: 3 of 2 columns"),
    ("csv", b"text,label\nok,1\nnothing,\nok,2\n", "line 3: the label is empty"),
    ("csv", b"text,label\nok,1\n" + b"x" * 200_000 + b",1\nok,2\n", "line 3: field larger than field limit"),
    ("jsonl", GOOD + b'{"text": "x"}\n' + GOOD, "line 2: no column 'label'"),
    ("jsonl", GOOD + b'{"text": "x", \n' + GOOD, "line 2: Expecting property name"),
    ("jsonl", GOOD + b"[1, 2]\n" + GOOD, "line 2: not a JSON object"),
    ("jsonl", GOOD + b"[" * 100_000 + b"\n" + GOOD, "line 2: maximum recursion depth"),
    ("jsonl", GOOD + b'{"text": 5, "label": 1}\n' + GOOD, "line 2: the text is int"),
    ("jsonl", GOOD + b'{"text": null, "label": 1}\n' + GOOD, "line 2: the text is missing"),
    ("jsonl", GOOD + b'{"text": "x", "label": 0.5}\n' + GOOD, "line 2: label 0.5 is neither text nor a whole number"),
    ("jsonl", GOOD + b'{"text": "x", "label": true}\n' + GOOD, "line 2: label True is neither"),
    ("jsonl", GOOD + b'{"text": "\xe9", "label": 1}\n' + GOOD, "line 2: not UTF-8"),
    ("jsonl", GOOD + b'{"text": "\\ud800", "label": 1}\n' + GOOD, "line 2: not UTF-8"),
]


@pytest.mark.parametrize(("form", "content", "reason"), BAD, ids=range(len(BAD)))
def test_a_bad_row_is_named_or_skipped_and_listed(tmp_path: Path, form: str, content: bytes, reason: str) -> None:
    path = tmp_path / f"rows.{form}"
    path.write_bytes(content)
    with pytest.raises(BrokenSource, match=reason) as caught:
        list(read_rows(path, COLUMNS, BadRows("stop")))
    assert str(caught.value).startswith(f"{path}, line ")
    bad = BadRows("skip")
    assert len(list(read_rows(path, COLUMNS, bad))) == 2
    assert bad.count == 1
    assert reason in bad.listed[0]


NUMBERS = Columns("text", "label", "numbers")
NOT_NUMBERS = [
    ("csv", b"text,label\nok,1\nx,wet\nok,-2.5e0\n", "line 3: label 'wet' is not a number"),
    ("csv", b"text,label\nok,1\nx,nan\nok,-2.5\n", "line 3: label 'nan' is not finite in float32"),
    ("csv", b"text,label\nok,1\nx,1e39\nok,-2.5\n", "line 3: label '1e39' is not finite in float32"),
    ("csv", b"text,label\nok,1\nx,\nok,-2.5\n", "line 3: the label is empty"),
    ("jsonl", GOOD + b'{"text": "x", "label": true}\n' + GOOD.replace(b"1", b"-2.5"), "line 2: label True is not a n"),
    ("jsonl", GOOD + b'{"text": "x", "label": NaN}\n' + GOOD.replace(b"1", b"-2.5"), "line 2: label nan is not finite"),
    ("jsonl", GOOD + b'{"text": "x", "label": [1]}\n' + GOOD.replace(b"1", b"-2.5"), r"line 2: label \[1\] is not a"),
]


@pytest.mark.parametrize(("form", "content", "reason"), NOT_NUMBERS, ids=range(len(NOT_NUMBERS)))
def test_labels_that_are_to_be_numbers_are_read_or_their_row_is_bad(
    tmp_path: Path, form: str, content: bytes, reason: str
) -> None:
    path = tmp_path / f"rows.{form}"
    path.write_bytes(content)
    with pytest.raises(BrokenSource, match=reason):
        list(read_rows(path, NUMBERS, BadRows("stop")))
    bad = BadRows("skip")
    assert [label for _, label in read_rows(path, NUMBERS, bad)] == [1, -2.5]
    assert bad.count == 1


def test_a_number_that_no_setting_asked_for_names_the_setting(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": ["ok"], "label": [0.5]}), path)
    with pytest.raises(BrokenSource, match=r"row 0: label 0.5 is neither .*; set labels: numbers in the task's entry"):
        list(read_rows(path, COLUMNS, BadRows("stop")))
    assert list(read_rows(path, NUMBERS, BadRows("stop"))) == [("ok", 0.5)]


def test_bad_parquet_rows_and_a_damaged_file_are_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    text = pyarrow.array([b"ok", b"\xff", b"ok", None]).cast(pyarrow.binary()).view(pyarrow.utf8())
    pyarrow.parquet.write_table(pyarrow.table({"text": text, "label": [1, 2, 3, 4]}), path)
    bad = BadRows("skip")
    assert list(read_rows(path, COLUMNS, bad)) == [("ok", 1), ("ok", 3)]
    assert bad.listed == [
        f"{path}, row 1: not UTF-8: invalid start byte",
        f"{path}, row 3: the text is missing",
    ]
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(BrokenSource, match=r"rows.parquet, row 0: not a sound Parquet file"):
        list(read_rows(path, COLUMNS, bad))


@pytest.mark.parametrize("form", ["csv.gz", "jsonl.gz"])
def test_truncated_gzip_is_named_with_the_line(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"rows.{form}"
    line = GOOD if "jsonl" in form else b"hello,1\n"
    whole = gzip.compress((b"text,label\n" if "csv" in form else b"") + line * 3_000)
    path.write_bytes(whole[:-20])
    with pytest.raises(BrokenSource, match=r"rows.*gz, line \d+: damaged gzip"):
        list(read_rows(path, COLUMNS, BadRows("skip")))


def test_a_missing_column_and_an_unknown_format_name_what_there_is(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("texts,label\n")
    with pytest.raises(BrokenSource, match="has no column 'text'; did you mean 'texts'"):
        list(read_rows(path, COLUMNS, BadRows("skip")))
    with pytest.raises(BrokenSource, match=r"unknown format '.xls'; known: .csv"):
        list(read_rows(tmp_path / "rows.xls", COLUMNS, BadRows("skip")))


def test_only_a_thousand_bad_rows_are_listed_and_all_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("text,label\n" + "x\n" * 3000)
    bad = BadRows("skip")
    assert list(read_rows(path, COLUMNS, bad)) == []
    assert bad.count == 3000
    assert len(bad.listed) == 1000
