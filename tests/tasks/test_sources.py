import io
import tarfile
from pathlib import Path

import pytest

from pipeline.identity import file_sha256
from pipeline.tasks.faults import BrokenSource, MissingSource
from pipeline.tasks.homology import RemoteHomology
from pipeline.tasks.places import Places, scratch
from pipeline.tasks.sources import Archive, fetch_archive, find_files
from tests.tasks.files import protein, write_tape_json


def archive_of(folder: Path, path: Path) -> Archive:
    with tarfile.open(path, "w:gz") as tar:
        tar.add(folder, arcname="remote_homology")
    return Archive(path.as_uri(), file_sha256(path))


def test_an_archive_is_fetched_checked_unpacked_and_used(tmp_path: Path) -> None:
    parts = {part: [protein("ACD", 1)] for part in ("train", "valid", "test_fold_holdout")}
    write_tape_json(tmp_path / "made", parts)
    archive = archive_of(tmp_path / "made", tmp_path / "tape.tar.gz")
    settings = RemoteHomology("remote_homology", 0, "paper", "json", archive=archive)
    for run in ("a", "b"):  # the second run finds it in the cache
        task = settings.load(Places(tmp_path / "cache", tmp_path / run))
        assert [len(split) for split in task.splits.values()] == [1, 1, 1]
        (tmp_path / "tape.tar.gz").unlink(missing_ok=True)


def test_an_archive_with_another_checksum_is_refused(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    archive = archive_of(tmp_path / "made", tmp_path / "a.tar.gz")
    with pytest.raises(BrokenSource, match=r"has sha256 [0-9a-f]{64}, not 0000"):
        fetch_archive(Archive(archive.url, "0" * 64), tmp_path / "cache")


def test_an_archive_that_leaves_its_folder_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "evil.tar"
    with tarfile.open(path, "w") as tar:
        member = tarfile.TarInfo("../outside")
        tar.addfile(member, io.BytesIO())
    with pytest.raises(BrokenSource, match="cannot be unpacked"):
        fetch_archive(Archive(path.as_uri(), file_sha256(path)), tmp_path / "cache")
    assert not (tmp_path / "outside").exists()


def test_only_known_schemes_are_fetched(tmp_path: Path) -> None:
    with pytest.raises(BrokenSource, match="is none of https, http, file"):
        fetch_archive(Archive("ftp://example.org/a.tar", "0" * 64), tmp_path)


def test_a_failed_download_says_so_and_which_file_is_wanted_where(tmp_path: Path) -> None:
    def download(cache: Path) -> Path:
        raise OSError("no network")

    with pytest.raises(MissingSource, match="known lacks a, b; the download failed: no network") as caught:
        find_files(["a", "b"], None, [tmp_path / "known"], Places(), download)
    assert f"put a, b into {tmp_path / 'known'}" in str(caught.value)


def test_ones_own_folder_is_never_filled_by_a_download(tmp_path: Path) -> None:
    def download(cache: Path) -> Path:
        raise AssertionError("not wanted")

    with pytest.raises(MissingSource, match="lacks a"):
        find_files(["a"], str(tmp_path), [], Places(), download)


def test_scratch_is_gone_afterwards_even_after_an_error(tmp_path: Path) -> None:
    def breaks() -> None:
        with scratch(Places(tmp_path, tmp_path / "work"), "x") as places:
            (places.work / "file").touch()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        breaks()
    assert not list((tmp_path / "work").iterdir())
