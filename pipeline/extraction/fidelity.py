"""How far what was stored is from float32, measured on a sample and kept in the manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import zarr

from pipeline.errors import PermafrostError
from pipeline.extraction.shard import Inputs, ShardJob, read_rows, witness_reader
from pipeline.features.dtypes import decode

SAMPLE = 32


class FidelityError(PermafrostError):
    """The stored hidden states are further from float32 than the tolerance allows."""


def check_fidelity(job: ShardJob, inputs: Inputs, store: Path) -> dict[str, Any]:
    """Recompute a seeded sample in float32, each row alone, and compare with what was stored.

    So it also proves that batches, padding and the order of work changed nothing beyond rounding, and, where
    transformers can run the network, that its code and ours agree.

    Returns:
        Whose code the reference is; per layer the relative error, ‖x − x₃₂‖ / ‖x₃₂‖ over the sample, and the smallest
        cosine of a vector with its float32 twin.

    Raises:
        FidelityError: a layer's relative error is above the settings' tolerance.
    """
    rows = np.sort(np.random.default_rng(0).permutation(job.layout.rows)[:SAMPLE])
    if not len(rows):
        return {"rows": 0, "reference": None, "relative_error": {}, "smallest_cosine": {}}
    features = zarr.open_array(store / "features", mode="r")
    found = decode(np.asarray(features.oindex[rows]), job.layout.dtype).astype(np.float64)
    exact = np.zeros_like(found)
    reader, reference_code = witness_reader(job)
    stored = inputs.read(rows)
    for place, row in enumerate(rows):
        states = read_rows(reader, inputs, stored[place : place + 1], inputs.lengths[row : row + 1])
        exact[place, : states.shape[1]] = states[0]
    relative: dict[str, float] = {}
    cosine: dict[str, float] = {}
    for index, name in enumerate(job.layout.layers):
        x, reference = found[:, :, index], exact[:, :, index]
        apart, size = float(np.linalg.norm(x - reference)), float(np.linalg.norm(reference))
        relative[name] = _rounded(apart / size if size else apart)  # of states that are all zero: apart is the error
        products = (x * reference).sum(-1), np.linalg.norm(x, axis=-1) * np.linalg.norm(reference, axis=-1)
        quotients = np.divide(*products, out=np.ones_like(products[0]), where=products[1] > 0)
        cosine[name] = _rounded(float(quotients.min()))
        if not relative[name] <= job.settings.tolerance:
            raise FidelityError(
                f"layer {name}: relative error {relative[name]:.2e} against float32 is above "
                f"{job.settings.tolerance:.2e}",
                mend="cache.compute_dtype: float32, or a larger cache.tolerance if you accept it",
            )
    return {"rows": len(rows), "reference": reference_code, "relative_error": relative, "smallest_cosine": cosine}


def _rounded(value: float) -> float:
    """Six digits: the last bits of a norm say nothing."""
    return float(f"{value:.6g}")
