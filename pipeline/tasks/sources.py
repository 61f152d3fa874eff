"""Finds a task's files: in the user's own folder, where a system package puts them, in the cache, or by download."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urlparse
from urllib.request import urlopen

from pydantic.dataclasses import dataclass

from pipeline.identity import file_sha256
from pipeline.params import STRICT
from pipeline.tasks.faults import BrokenSource, MissingSource
from pipeline.tasks.places import Places

SCHEMES = ("https", "http", "file")


@dataclass(frozen=True, config=STRICT)
class Archive:
    """A tar archive at `url`; its bytes must have this `sha256` (hex)."""

    url: str
    sha256: str


def find_files(
    names: Sequence[str],
    own: str | None,
    known: Iterable[Path],
    places: Places,
    download: Callable[[Path], Path] | None,
    compressed: bool = False,
    origin: str | None = None,
) -> dict[str, Path]:
    """Each of `names` as a path, all in one folder.

    Args:
        names: file or folder names that are wanted.
        own: the user's own folder; when it is given nothing else is looked at.
        known: folders where they may be already, in this order.
        places: where downloads are kept, and whether they are allowed.
        download: fetches them into the cache folder and returns the folder that then holds them, if there is a way.
        compressed: whether `name.gz` will do for `name`.
        origin: where they are published, for the error message.

    Raises:
        MissingSource: they are nowhere; it says which file is wanted where.
    """
    folders = [Path(own)] if own is not None else [*known]
    if own is None and download is not None and not places.offline and not _complete(folders, names, compressed):
        try:
            folders = [*folders, download(places.cache)]
        except (URLError, RuntimeError, OSError) as error:
            raise MissingSource(*_explained(names, folders, compressed, f"the download failed: {error}")) from error
    found = _complete(folders, names, compressed)
    if found is None:
        off = "downloads are off (--offline)" if own is None and download is not None and places.offline else None
        why, mend = _explained(names, folders, compressed, off)
        raise MissingSource(why, mend if origin is None else f"{mend}; they are part of {origin}")
    return found


def _complete(folders: Sequence[Path], names: Sequence[str], compressed: bool) -> dict[str, Path] | None:
    """The files in the first folder that has them all."""
    for folder in folders:
        found = {name: path for name in names if (path := _present(folder, name, compressed)) is not None}
        if len(found) == len(names):
            return found
    return None


def _present(folder: Path, name: str, compressed: bool) -> Path | None:
    candidates = [folder / name, *([folder / f"{name}.gz"] if compressed else [])]
    return next((path for path in candidates if path.exists()), None)


def _explained(names: Sequence[str], folders: Sequence[Path], compressed: bool, why: str | None) -> tuple[str, str]:
    """What is missing where, and how to mend it."""
    lacks = {folder: [name for name in names if _present(folder, name, compressed) is None] for folder in folders}
    lines = [*(f"{folder} lacks {', '.join(missing)}" for folder, missing in lacks.items()), *([why] if why else [])]
    mend = f"put {', '.join(names)} into {folders[0]}, or name the folder that holds them as `folder` in params.yaml"
    return "; ".join(lines), mend


def fetch_archive(archive: Archive, cache: Path) -> Path:
    """Download a tar archive into `cache`, check it, unpack it, and return the folder it was unpacked to.

    What is there already, with the right checksum, is not fetched again.

    Raises:
        BrokenSource: the bytes do not have the checksum, or the address is not http, https or file.
        OSError: the download failed.
    """
    parsed = urlparse(archive.url)
    if parsed.scheme not in SCHEMES:
        raise BrokenSource(f"{archive.url} is none of {', '.join(SCHEMES)}")
    cache.mkdir(parents=True, exist_ok=True)
    path = cache / Path(parsed.path).name
    if not path.is_file():
        partial = path.with_name(path.name + ".partial")
        with urlopen(archive.url, timeout=60) as response, partial.open("wb") as file:
            while block := response.read(2**20):
                file.write(block)
        partial.replace(path)
    found = file_sha256(path)
    if found != archive.sha256:
        raise BrokenSource(f"{path} has sha256 {found}, not {archive.sha256}", mend=f"delete {path} to fetch it again")
    folder = cache / archive.sha256[:16]
    if not folder.is_dir():
        partial = folder.with_suffix(".partial")
        try:
            with tarfile.open(path) as tar:
                tar.extractall(partial, filter="data")  # refuses paths and links that leave the folder
        except tarfile.TarError as error:
            raise BrokenSource(f"{path} cannot be unpacked: {error}") from error
        partial.replace(folder)
    return folder


def checksums(paths: Iterable[Path]) -> dict[str, str]:
    """File name → sha256 (hex): what a task's source is made of, wherever it lies. An LMDB folder is its data.mdb."""
    return {path.name: file_sha256(path if path.is_file() else path / "data.mdb") for path in paths}
