"""Number formats of the store, and the refusal of values that they cannot hold.

Zarr knows no bfloat16, so it is stored bit for bit as uint16 and named in the attribute `logical_dtype`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float, Float32, Int64, UInt16

from pipeline.errors import PermafrostError

StorageDtype = Literal["bfloat16", "float16", "float32"]
LARGEST = {"bfloat16": 3.3895313892515355e38, "float16": 65504.0, "float32": 3.4028234663852886e38}
ON_DISK = {"bfloat16": "uint16", "float16": "float16", "float32": "float32"}


class ValueRangeError(PermafrostError):
    """A hidden state that is not finite, or that the storage dtype cannot hold."""


def encode(
    values: Float32[np.ndarray, "row readout layer width"],
    dtype: StorageDtype,
    layers: Sequence[str],
    rows: Int64[np.ndarray, " row"],
) -> np.ndarray:
    """Values as they are stored, rounded to nearest even; `(row, readout, layer, width)` stays.

    Args:
        values: hidden states.
        dtype: the store's logical dtype.
        layers: names of the layers, for the error message.
        rows: their numbers, for the error message.

    Raises:
        ValueRangeError: a value is not finite, or would become so; names row, layer and a dtype that would do.
    """
    bad = ~(np.abs(values) <= LARGEST[dtype])  # also true for NaN
    if bad.any():
        row, _, layer, _ = (int(index[0]) for index in np.nonzero(bad))
        value = values[bad][0]
        at = f"row {rows[row]}, layer {layers[layer]}"
        if not np.isfinite(values[bad]).all():
            raise ValueRangeError(f"{at}: the hidden state is {value}", mend="cache.compute_dtype: float32")
        raise ValueRangeError(f"{at}: {value:g} does not fit {dtype}", mend="cache.storage_dtype: bfloat16")
    if dtype == "bfloat16":
        return to_bfloat16(values)
    return values.astype(ON_DISK[dtype])


def decode(stored: np.ndarray, dtype: StorageDtype) -> Float32[np.ndarray, "..."]:
    """Stored values as float32, exactly."""
    if dtype == "bfloat16":
        return from_bfloat16(stored)
    return stored.astype(np.float32)


def to_bfloat16(values: Float32[np.ndarray, "*shape"]) -> UInt16[np.ndarray, "*shape"]:
    """The upper half of each finite float32, rounded to nearest even."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (rounded >> np.uint32(16)).astype(np.uint16)


def from_bfloat16(stored: UInt16[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """bfloat16 bits as float32, exactly."""
    return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)
