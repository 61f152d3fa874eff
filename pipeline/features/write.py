"""Writes a feature store: the arrays once, then whole shards, each by one writer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import zarr
from jaxtyping import Shaped
from zarr.codecs import Crc32cCodec

from pipeline.features.dtypes import ON_DISK
from pipeline.features.layout import Layout

# zarr-python's own codec pipeline writes the same bytes in any order of work, and each file under another name first;
# a faster pipeline that a user may have switched on does neither.
# A chunk of zeros is written like any other: without it Zarr leaves a shard of zeros out, and its file is missing.
WRITER = {
    "codec_pipeline.path": "zarr.core.codec_pipeline.BatchedCodecPipeline",
    "array.write_empty_chunks": True,
}


def create_store(
    path: Path, layout: Layout, attributes: dict[str, Any], splits: dict[str, dict[str, np.ndarray]]
) -> None:
    """Make the store with its metadata and small arrays; every shard of `features` is still missing.

    Args:
        path: a folder that does not exist yet.
        layout: shape and cutting of `features`.
        attributes: what a reader needs to know; stored sorted.
        splits: per split `row`, which row of `features` an example is, and `labels` `(example, answer)`.
    """
    with zarr.config.set(WRITER):
        root = zarr.create_group(path, attributes=dict(sorted(attributes.items())))
        root.create_array(
            "features",
            shape=layout.shape,
            dtype=ON_DISK[layout.dtype],
            chunks=(layout.chunk_rows, *layout.shape[1:]),
            shards=(layout.shard_rows, *layout.shape[1:]),
            compressors=Crc32cCodec(),
            config={"write_empty_chunks": True},
            attributes={"dimensions": ["row", "readout", "layer", "width"], "logical_dtype": layout.dtype},
        )
        for name, arrays in splits.items():
            group = root.create_group(name)
            for array_name, values in arrays.items():
                array = group.create_array(
                    array_name,
                    shape=values.shape,
                    dtype=values.dtype,
                    chunks=tuple(max(1, size) for size in values.shape),
                    compressors=Crc32cCodec(),
                    config={"write_empty_chunks": True},
                )
                array[...] = values


def write_shard(path: Path, layout: Layout, shard: int, stored: Shaped[np.ndarray, "row readout layer width"]) -> None:
    """Write one whole shard; the file appears complete or not at all.

    Args:
        path: the store.
        layout: how it is cut.
        shard: its number.
        stored: the shard's rows, as `encode` gives them.

    Raises:
        ValueError: `stored` are not exactly the shard's rows in the dtype on disk.
    """
    rows = layout.rows_of(shard)
    wanted = (len(rows), *layout.shape[1:])
    if stored.shape != wanted or stored.dtype != ON_DISK[layout.dtype]:
        raise ValueError(
            f"shard {shard} has shape {wanted} in {ON_DISK[layout.dtype]}, got {stored.shape} in {stored.dtype}"
        )
    (path / layout.file_of(shard)).unlink(missing_ok=True)  # zarr would read a damaged one before writing over it
    with zarr.config.set(WRITER):
        array = zarr.open_array(path / "features", mode="r+")
        array[rows.start : rows.stop] = stored
