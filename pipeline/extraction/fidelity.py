"""How far the stored precision is from float32, measured on a sample and kept in the manifest."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32

from pipeline.errors import PermafrostError
from pipeline.extraction.forward import Reader

SAMPLE = 32


class FidelityError(PermafrostError):
    """The computed hidden states are further from float32 than the tolerance allows."""


def check_fidelity(
    reader: Reader, inputs: Float32[np.ndarray, "row token feature"], tolerance: float
) -> dict[str, Any]:
    """Recompute a seeded sample in float32 and compare.

    Returns:
        Per layer the relative error, ‖x − x₃₂‖ / ‖x₃₂‖ over the sample, and the smallest cosine of a vector with its
        float32 twin.

    Raises:
        FidelityError: a layer's relative error is above `tolerance`.
    """
    rows = np.random.default_rng(0).permutation(len(inputs))[:SAMPLE]
    device = reader.adapter.weight.device
    sample = torch.from_numpy(inputs[np.sort(rows)]).to(device)
    exact = replace(reader, backbone=copy.deepcopy(reader.backbone).float()).read(sample)
    found = reader.read(sample)
    relative, cosine = {}, {}
    for index, name in enumerate(reader.layers):
        x, reference = found[:, :, index].double(), exact[:, :, index].double()
        relative[name] = _rounded((x - reference).norm() / reference.norm())
        cosine[name] = _rounded(torch.cosine_similarity(x, reference, dim=-1).min())
        if relative[name] > tolerance:
            raise FidelityError(
                f"layer {name}: relative error {relative[name]:.2e} against float32 is above {tolerance:.2e}",
                mend="cache.compute_dtype: float32, or a larger cache.tolerance if you accept it",
            )
    return {"rows": len(sample), "relative_error": relative, "smallest_cosine": cosine}


def _rounded(value: Float[torch.Tensor, ""]) -> float:
    """Six digits: the last bits of a norm say nothing."""
    return float(f"{float(value):.6g}")
