"""Reads CIFAR-10's batches: the Python version (pickles) and the binary version.

Source: https://www.cs.toronto.edu/~kriz/cifar.html. A picture is 3072 bytes: 1024 red, 1024 green, 1024 blue, each in
raster order. A pickle is a dict with `data` (uint8, picture × 3072) and `labels` (a list); a binary record is the
label's byte and the 3072.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from pipeline.tasks.faults import BadRows, BrokenSource
from pipeline.tasks.image_task import CLASSES, LabelledImages
from pipeline.tasks.safe_pickle import RefusedPickle, plain_data

SIDE = 32
PICTURE_BYTES = 3 * SIDE * SIDE


def read_batch(path: Path, bad: BadRows) -> LabelledImages:
    """The pictures `(image, row, column, channel)` of one batch file; `.bin` is the binary version.

    Raises:
        BrokenSource: the file is damaged, not a batch, or a pickle of more than plain data; or a label is beyond 9
            and bad rows stop the run.
    """
    pictures, labels = _read_binary(path) if path.suffix == ".bin" else _read_pickle(path)
    wrong = (labels < 0) | (labels >= CLASSES)
    for row in np.flatnonzero(wrong):
        bad.add(path, f"row {row}", f"label {labels[row]} is not one of 0 to {CLASSES - 1}")
    planes = pictures[~wrong].reshape(-1, 3, SIDE, SIDE)
    return LabelledImages(planes.transpose(0, 2, 3, 1), labels[~wrong].astype(np.uint8))


def _read_binary(path: Path) -> tuple[UInt8[np.ndarray, "image byte"], np.ndarray]:
    content = np.fromfile(path, np.uint8)
    records, rest = divmod(len(content), 1 + PICTURE_BYTES)
    if rest:
        raise BrokenSource(f"{path}, row {records}: the file ends after {rest} of its {1 + PICTURE_BYTES} bytes")
    table = content.reshape(records, 1 + PICTURE_BYTES)
    return table[:, 1:], table[:, 0].astype(np.int64)


def _read_pickle(path: Path) -> tuple[UInt8[np.ndarray, "image byte"], np.ndarray]:
    try:
        batch = plain_data(path.read_bytes())
    except RefusedPickle as error:
        raise BrokenSource(f"{path}: refused: {error}") from error
    if not isinstance(batch, dict) or not {"data", "labels"} <= batch.keys():
        raise BrokenSource(f"{path} is not a CIFAR-10 batch: it needs a dict with `data` and `labels`")
    pictures = batch["data"]
    if not isinstance(pictures, np.ndarray) or pictures.dtype != np.uint8 or pictures.shape[1:] != (PICTURE_BYTES,):
        raise BrokenSource(f"{path}: `data` is not an array of bytes, picture × {PICTURE_BYTES}")
    try:
        labels = np.asarray(batch["labels"], np.int64)
    except (TypeError, ValueError, OverflowError) as error:
        raise BrokenSource(f"{path}: `labels` are not whole numbers: {error}") from error
    if labels.shape != (len(pictures),):
        raise BrokenSource(f"{path} has {len(pictures)} pictures and labels of shape {labels.shape}")
    return pictures, labels
