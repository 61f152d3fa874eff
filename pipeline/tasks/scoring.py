"""How an answer is judged."""

from __future__ import annotations

import numpy as np
from jaxtyping import Integer


def accuracy(
    predicted: Integer[np.ndarray, "example answer"], labels: Integer[np.ndarray, "example answer"]
) -> float | None:
    """The share of answers that are right, every answer of an example counted alone (the paper's per-bit accuracy).

    None when there is nothing to judge.
    """
    return float(np.mean(predicted == labels)) if labels.size else None
