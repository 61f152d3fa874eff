"""Opens .npy and .npz files memory-mapped, and hands out their rows block by block."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.tasks.faults import BadRows, BrokenSource
from pipeline.tasks.labels import AS_NUMBERS, LabelKind
from pipeline.tasks.task import BLOCK_ROWS, EMPTY

LABEL_DTYPES: dict[LabelKind, str] = {"classes": "iuUb", "numbers": "iuf"}
"""numpy's kinds of dtype that labels may have."""


@dataclass(frozen=True)
class ArraySource:
    """One split's arrays, memory-mapped: `inputs`, `labels`, and `lengths` where examples are padded."""

    path: Path
    inputs: np.ndarray
    labels: np.ndarray
    lengths: np.ndarray | None


@dataclass(frozen=True)
class ArrayRows:
    """Good rows of a block: their inputs, lengths in tokens, flags, and labels `(row, answer)` as they came."""

    inputs: np.ndarray
    lengths: np.ndarray
    flags: np.ndarray
    labels: np.ndarray


def open_arrays(path: Path, work: Path, kind: LabelKind = "classes") -> ArraySource:
    """The arrays of a folder with .npy files, or of an .npz file, whose members are unpacked into `work`.

    Raises:
        BrokenSource: an array is missing, damaged, holds Python objects, has another number of rows, or labels are not
            of the `kind`.
    """
    if path.is_dir():
        files = {name: path / f"{name}.npy" for name in ("inputs", "labels", "lengths")}
    else:
        files = _unpacked(path, work)
    arrays = {name: _mapped(path, file) for name, file in files.items() if file.is_file()}
    for name in ("inputs", "labels"):
        if name not in arrays:
            raise BrokenSource(f"{path} has no array {name!r}; it has {', '.join(arrays) or 'none'}")
    for name, array in arrays.items():
        if not array.ndim or len(array) != len(arrays["inputs"]):
            raise BrokenSource(f"{path}: inputs are {arrays['inputs'].shape}, {name} are {array.shape}")
    labels = arrays["labels"]
    if labels.ndim > 2 or labels.dtype.kind not in LABEL_DTYPES[kind]:
        why = f"{path}: labels of shape {labels.shape} and dtype {labels.dtype} are not {kind}"
        raise BrokenSource(why, mend=AS_NUMBERS if labels.dtype.kind == "f" else None)
    lengths = arrays.get("lengths")
    if lengths is not None and (lengths.ndim != 1 or lengths.dtype.kind not in "iu"):
        raise BrokenSource(f"{path}: lengths of shape {lengths.shape} and dtype {lengths.dtype} are not token counts")
    return ArraySource(path, arrays["inputs"], labels if labels.ndim == 2 else labels[:, None], lengths)


def _unpacked(path: Path, work: Path) -> dict[str, Path]:
    work.mkdir(parents=True)
    files = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for name in ("inputs", "labels", "lengths"):
                if f"{name}.npy" in archive.namelist():
                    files[name] = work / f"{name}.npy"
                    with archive.open(f"{name}.npy") as member, files[name].open("wb") as file:
                        shutil.copyfileobj(member, file, 2**20)  # checks the member's checksum at its end
    except (zipfile.BadZipFile, EOFError, OSError) as error:
        raise BrokenSource(f"{path} is not a sound .npz file: {error}") from error
    return files


def _mapped(path: Path, file: Path) -> np.ndarray:
    try:
        return np.load(file, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise BrokenSource(f"{path}: {file.name} cannot be read: {error}") from error


def largest_id(source: ArraySource) -> int:
    """The largest id in `inputs`, −1 where there is none."""
    blocks = (source.inputs[start : start + BLOCK_ROWS] for start in range(0, len(source.inputs), BLOCK_ROWS))
    return max((int(block.max()) for block in blocks if block.size), default=-1)


def good_rows(source: ArraySource, vocabulary: int | None, bad: BadRows) -> Iterator[tuple[np.ndarray, ArrayRows]]:
    """The rows that can be used, with their numbers; the others are noted in `bad`.

    A length of 0 becomes a single pad with the flag `EMPTY`. `vocabulary` is None for patches.
    """
    for start in range(0, len(source.inputs), BLOCK_ROWS):
        rows = np.arange(start, min(start + BLOCK_ROWS, len(source.inputs)))
        inputs = np.asarray(source.inputs[start : start + BLOCK_ROWS])
        width = inputs.shape[1]
        lengths = np.full(len(rows), width) if source.lengths is None else np.asarray(source.lengths[rows], np.int64)
        labels = np.asarray(source.labels[start : start + BLOCK_ROWS])
        reasons = _reasons(inputs, lengths, vocabulary) | _not_finite(labels)
        for place, reason in sorted(reasons.items()):
            bad.add(source.path, f"row {rows[place]}", reason)
        good = ~np.isin(np.arange(len(rows)), [*reasons])
        flags = np.where(lengths[good] == 0, np.uint8(EMPTY), np.uint8(0))
        yield rows[good], ArrayRows(inputs[good], np.maximum(lengths[good], 1), flags, labels[good])


def _reasons(inputs: np.ndarray, lengths: np.ndarray, vocabulary: int | None) -> dict[int, str]:
    """Why rows of a block cannot be used, by place in the block."""
    width = inputs.shape[1]
    reasons: dict[int, str] = {}
    if vocabulary is None:
        with np.errstate(over="ignore"):
            finite = np.isfinite(inputs.astype(np.float32))  # what float64 holds may be beyond float32
        for place in np.flatnonzero(~finite.all(axis=(1, 2))):
            reasons[int(place)] = "a number that is not finite in float32"
    else:
        real = np.arange(width) < lengths[:, None]
        for place in np.flatnonzero((((inputs < 0) | (inputs >= vocabulary)) & real).any(axis=1)):
            reasons[int(place)] = f"an id that is not one of 0 to {vocabulary - 1}"
    for place in np.flatnonzero((lengths < 0) | (lengths > width)):
        reasons[int(place)] = f"length {lengths[place]} is not one of 0 to {width}"
    return reasons


def _not_finite(labels: np.ndarray) -> dict[int, str]:
    """Rows of a block whose label is a number that float32 cannot hold, by place in the block."""
    if labels.dtype.kind != "f":
        return {}
    with np.errstate(over="ignore"):
        finite = np.isfinite(labels.astype(np.float32)).all(axis=1)
    return {int(place): f"label {labels[place].tolist()} is not finite in float32" for place in np.flatnonzero(~finite)}
