"""Feature stores made of given numbers, and blobs of points to fill them with."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pipeline.features import FeatureStore, open_features
from pipeline.features.dtypes import encode
from pipeline.features.layout import plan_layout
from pipeline.features.store import SCHEMA
from pipeline.features.write import create_store, write_shard
from pipeline.identity import file_digests, write_manifest

Split = tuple[np.ndarray, np.ndarray]


def write_store(
    path: Path,
    splits: dict[str, Split],
    classes: int,
    layers: tuple[str, ...] = ("final",),
    dtype: str = "float32",
    shard_bytes: int = 1 << 14,
    chunk_bytes: int | None = None,
) -> FeatureStore:
    """A store whose splits hold features `(example, readout, layer, width)` and labels `(example, answer)`.

    A chunk is a quarter of a shard where nothing else is asked for.
    """
    features = np.concatenate([x for x, _ in splits.values()])
    sizes = (shard_bytes, chunk_bytes or shard_bytes // 4)
    layout = plan_layout(len(features), features.shape[1], layers, features.shape[3], dtype, *sizes)
    starts = np.cumsum([0, *(len(x) for x, _ in splits.values())])
    arrays = {
        name: {"row": np.arange(start, start + len(x)), "labels": labels}
        for (name, (x, labels)), start in zip(splits.items(), starts, strict=False)
    }
    create_store(path, layout, {"classes": classes, "dtype": dtype, "layers": list(layers)}, arrays)
    for shard in range(layout.shards):
        rows = layout.rows_of(shard)
        held = np.arange(rows.start, rows.stop)
        write_shard(path, layout, shard, encode(features[held], dtype, layers, held))
    floors = {"majority class": 1 / classes} if classes else {}
    write_manifest(path, {"schema": SCHEMA}, file_digests(path), floors=floors)
    return open_features(path)


def blobs(rows: int, width: int, classes: int, seed: int, apart: float = 1.0, layers: int = 1) -> Split:
    """Classes that overlap, in features of very different scale; the class means are the same for every seed."""
    means = np.random.default_rng(99).standard_normal((classes, width)) * apart
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, classes, rows)
    x = generator.standard_normal((rows, 1, layers, width)) + means[labels][:, None, None]
    return (x * np.logspace(-1, 1, width) + 3).astype(np.float32), labels[:, None]


def three_splits(
    rows: int = 300, width: int = 8, classes: int = 3, layers: int = 1, apart: float = 1.0
) -> dict[str, Split]:
    """Train, validation and test, the last two a third as large."""
    sizes = {"train": rows, "validation": rows // 3, "test": rows // 3}
    return {name: blobs(size, width, classes, seed, apart, layers) for seed, (name, size) in enumerate(sizes.items())}
