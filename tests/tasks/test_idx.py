import gzip
from pathlib import Path

import numpy as np
import pytest

from pipeline.tasks.faults import BrokenSource
from pipeline.tasks.idx import read_idx
from tests.tasks.files import idx_bytes

IMAGES = np.arange(5 * 4 * 3, dtype=np.uint8).reshape(5, 4, 3)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_plain_and_gzip_files_give_what_was_written(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"images{suffix}"
    path.write_bytes(gzip.compress(idx_bytes(IMAGES)) if suffix else idx_bytes(IMAGES))
    np.testing.assert_array_equal(read_idx(path, axes=3), IMAGES)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (idx_bytes(IMAGES, magic=0x801), "wrong magic number 0x00000801, an IDX file of 3 axes has 0x00000803"),
        (idx_bytes(IMAGES, rows=7), "row 5: the file ends here, its header announces 7 rows"),
        (idx_bytes(IMAGES, rows=2**31), "row 5: the file ends here, its header announces 2147483648 rows"),
        (idx_bytes(IMAGES, rows=4), "row 4: bytes follow after the 4 rows"),
        (idx_bytes(IMAGES)[:-20], "row 3: the file ends here"),
        (idx_bytes(IMAGES)[:10], "the header ends after 10 bytes"),
        (b"", "wrong magic number"),
    ],
    ids=["magic", "more announced", "billions announced", "fewer announced", "cut", "cut header", "empty"],
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_broken_file_is_named_with_row_and_reason(tmp_path: Path, content: bytes, reason: str, suffix: str) -> None:
    path = tmp_path / f"images{suffix}"
    path.write_bytes(gzip.compress(content) if suffix else content)
    with pytest.raises(BrokenSource, match=reason) as caught:
        read_idx(path, axes=3)
    assert str(path) in str(caught.value)


def test_truncated_and_damaged_gzip_are_named(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (50, 28, 28), np.uint8)
    whole = gzip.compress(idx_bytes(images))
    path = tmp_path / "images.gz"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BrokenSource, match=r"images.gz, row 2\d: the file ends here, its header announces 50 rows"):
        read_idx(path, axes=3)
    path.write_bytes(whole[:400] + bytes(100) + whole[500:])
    with pytest.raises(BrokenSource, match=r"images.gz"):
        read_idx(path, axes=3)
    path.write_bytes(b"no gzip at all")
    with pytest.raises(BrokenSource, match="is not gzip"):
        read_idx(path, axes=3)


def test_no_rows_are_a_valid_file(tmp_path: Path) -> None:
    path = tmp_path / "none"
    path.write_bytes(idx_bytes(IMAGES[:0]))
    assert read_idx(path, axes=3).shape == (0, 4, 3)
