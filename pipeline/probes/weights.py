"""How much an answer counts by its class, so that rare classes are not drowned out."""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Float32, Num

ClassWeights = Literal["balanced"] | dict[int, float] | None


def weights_of(
    wanted: ClassWeights, labels: Num[np.ndarray, "row answer"], classes: int
) -> Float32[np.ndarray, "class"] | None:
    """The weight of each class; None when all count alike.

    Args:
        wanted: `balanced` weighs a class by answers / (classes that occur × answers of the class), as scikit-learn; a
            map gives weights by class number, those that it does not name weigh 1.
        labels: the training answers.
        classes: how many there are.

    Raises:
        ValueError: the map names a class that there is not.
    """
    if wanted is None or not classes:  # numbers have no classes
        return None
    if wanted == "balanced":
        counts = np.bincount(labels.ravel(), minlength=classes)
        occurring = max(1, int((counts > 0).sum()))
        return (labels.size / (occurring * np.maximum(counts, 1))).astype(np.float32)
    unknown = sorted(set(wanted) - set(range(classes)))
    if unknown:
        raise ValueError(f"probe.class_weights names class {unknown[0]}; the classes are 0 to {classes - 1}")
    weights = np.ones(classes, np.float32)
    weights[list(wanted)] = list(wanted.values())
    return weights
