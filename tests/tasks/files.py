"""Small files in the real formats, written byte by byte."""

from __future__ import annotations

import gzip
import json
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np


def idx_bytes(values: np.ndarray, magic: int | None = None, rows: int | None = None) -> bytes:
    """An IDX file of unsigned bytes; `magic` and `rows` overwrite what the header says."""
    number = 0x800 + values.ndim if magic is None else magic
    shape = (len(values) if rows is None else rows, *values.shape[1:])
    return struct.pack(f">{1 + values.ndim}I", number, *shape) + values.astype(np.uint8).tobytes()


def write_mnist(folder: Path, train: int = 20, test: int = 8, compressed: bool = True) -> dict[str, np.ndarray]:
    """The four files of MNIST with random images."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    written = {}
    for part, count in (("train", train), ("t10k", test)):
        images = random.integers(0, 256, (count, 28, 28), np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        for name, values in ((f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", labels)):
            content = idx_bytes(values)
            path = folder / (name + ".gz" if compressed else name)
            path.write_bytes(gzip.compress(content) if compressed else content)
            written[name] = values
    return written


def cifar_batch(pictures: np.ndarray, labels: list[int]) -> bytes:
    """A batch as Python 2 pickled it (protocol 2): a dict with more keys than are needed."""
    batch = {"batch_label": "training batch", "labels": labels, "data": pictures, "filenames": ["a.png"] * len(labels)}
    return pickle.dumps(batch, protocol=2)


def write_cifar(folder: Path, rows: int = 6, binary: bool = False) -> dict[str, tuple[np.ndarray, list[int]]]:
    """CIFAR-10's six batches with random pictures: name → pictures `(row, byte)` and labels."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(1)
    written = {}
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        pictures = random.integers(0, 256, (rows, 3072), np.uint8)
        labels = random.integers(0, 10, rows).tolist()
        if binary:
            records = b"".join(bytes([label]) + row.tobytes() for label, row in zip(labels, pictures, strict=True))
            (folder / f"{name}.bin").write_bytes(records)
        else:
            (folder / name).write_bytes(cifar_batch(pictures, labels))
        written[name] = (pictures, labels)
    return written


def protein(sequence: str, fold: int) -> dict[str, Any]:
    """One example with the fields that TAPE has beside the two that are read."""
    return {
        "primary": sequence,
        "protein_length": len(sequence),
        "fold_label": fold,
        "class_label": 0,
        "evolutionary": [[0.5] * 3],
        "id": "d1abc_",
    }


TAPE_PARTS = ("train", "valid", "test_fold_holdout", "test_superfamily_holdout", "test_family_holdout")


def write_tape_json(folder: Path, parts: dict[str, list[dict[str, Any]]]) -> None:
    """TAPE's raw JSON: one list of dicts for each part."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, examples in parts.items():
        (folder / f"remote_homology_{part}.json").write_text(json.dumps(examples), encoding="utf-8")


def write_lmdb(path: Path, values: list[bytes], count: Any = None) -> None:
    """An LMDB folder as TAPE has it; the values are pickles already."""
    import lmdb

    with lmdb.open(str(path), map_size=2**24) as environment, environment.begin(write=True) as transaction:
        transaction.put(b"num_examples", pickle.dumps(len(values) if count is None else count))
        for row, value in enumerate(values):
            transaction.put(str(row).encode(), value)


def write_tape_lmdb(folder: Path, parts: dict[str, list[dict[str, Any]]]) -> None:
    """TAPE's LMDB: one folder for each part, arrays inside the pickles."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, examples in parts.items():
        rows = [pickle.dumps(example | {"profile": np.zeros((2, 3), np.float32)}) for example in examples]
        write_lmdb(folder / f"remote_homology_{part}.lmdb", rows)


def lra_line(ids: list[int], value: int) -> bytes:
    """An expression in the Long Range Arena's notation: every list is nested pairs, CRLF at the end."""
    from pipeline.tasks.listops_language import CLOSE, MEANING, NAMES

    open_lists: list[str] = []
    finished = ""
    for number in ids:
        if number in MEANING:
            open_lists.append(NAMES[number])
            continue
        finished = NAMES[number]
        if number == CLOSE:
            finished = f"( {open_lists.pop()} ] )"
        if open_lists:
            open_lists[-1] = f"( {open_lists[-1]} {finished} )"
    return f"{finished}\t{value}\r\n".encode()


def write_lra(folder: Path, lines: dict[str, list[bytes]]) -> None:
    """`basic_<part>.tsv` with the header and these lines."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, content in lines.items():
        (folder / f"basic_{part}.tsv").write_bytes(b"Source\tTarget\r\n" + b"".join(content))


class RunsCode:
    """Pickles to a program that makes the file `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))
