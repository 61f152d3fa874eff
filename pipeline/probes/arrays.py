"""The one place where a probe's numbers lie in numpy, on a processor, or in torch, on a device.

Solvers use only functions that numpy and torch call by the same names: `+=`, `@`, `.T`, `exp`, `log`, `amax`, `sum`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np

Array = Any
"""A numpy array, or a torch tensor."""


def place(x: np.ndarray, device: str | None) -> Array:
    """The values on a torch device; as they are, in numpy, without one."""
    if device is None:
        return x
    import torch

    return torch.from_numpy(np.ascontiguousarray(x)).to(device)


def like(x: Array, values: np.ndarray) -> Array:
    """Values in float32 where x lies."""
    values = values.astype(np.float32, copy=False)
    return values if isinstance(x, np.ndarray) else place(values, str(x.device))


def library(x: Array) -> ModuleType:
    """numpy or torch, whichever x belongs to; torch is looked up only where it was already imported."""
    return np if isinstance(x, np.ndarray) else sys.modules["torch"]


def empty(x: Array, rows: int, columns: int) -> Array:
    """Room for float32 values where x lies."""
    if isinstance(x, np.ndarray):
        return np.empty((rows, columns), np.float32)
    return library(x).empty((rows, columns), device=x.device)


def to_numpy(x: Array) -> np.ndarray:
    """The values in numpy, on the processor."""
    return x if isinstance(x, np.ndarray) else x.cpu().numpy()
