"""Digits: scikit-learn's 1797 real handwritten digits, 8 × 8 pixels of 17 grey levels, cut into square patches.

The images ship inside scikit-learn (the test part of UCI's "Optical Recognition of Handwritten Digits"), so this is
the real task that needs no download. Patches run left to right, top to bottom, as in the paper's image tasks.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from pipeline.params import STRICT, Seed
from pipeline.tasks.images import patches_of
from pipeline.tasks.places import HERE, Places
from pipeline.tasks.rules import BRIGHTNESS_LEVELS, lookup, mean_brightness
from pipeline.tasks.task import Split, TaskData

WHITE = 16


@dataclass(frozen=True, config=STRICT)
class Digits:
    """`patch`: side of a patch in pixels; shares of the images held out for `validation` and `test`, by class."""

    kind: Literal["digits"]
    seed: Seed
    patch: Literal[1, 2, 4, 8]
    validation: Annotated[float, Field(gt=0, lt=0.5)]
    test: Annotated[float, Field(gt=0, lt=0.5)]

    def load(self, places: Places = HERE) -> TaskData:
        """The images as patches, split with the same share of each class in every part."""
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split

        pixels, classes = load_digits(return_X_y=True)
        images = np.asarray(pixels, np.uint8).reshape(-1, 8, 8)
        labels = np.asarray(classes, np.uint8)
        inputs = patches_of(images, self.patch)

        def hold_out(rows: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray]:
            count = round(share * len(labels))
            kept, held = train_test_split(rows, test_size=count, stratify=labels[rows], random_state=self.seed)
            return np.asarray(kept), np.asarray(held)

        rest, test = hold_out(np.arange(len(labels)), self.test)
        train, validation = hold_out(rest, self.validation)
        parts = {"train": train, "validation": validation, "test": test}
        return TaskData(
            kind="patches",
            classes=10,
            readout=1,
            scale=1 / WHITE,
            splits={name: Split.of(inputs[rows], labels[rows][:, None]) for name, rows in parts.items()},
            source={"name": "sklearn.datasets.load_digits", "sha256": hashlib.sha256(images.tobytes()).hexdigest()},
            image={"side": 8, "channels": 1, "patch": self.patch},
            rules={"mean brightness": lookup(mean_brightness(WHITE), BRIGHTNESS_LEVELS, 10)},
        )
