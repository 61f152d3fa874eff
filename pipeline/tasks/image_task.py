"""What the tasks made of image files share: settings, splits, the trivial rule."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import numpy as np
from jaxtyping import UInt8
from pydantic import Field
from pydantic.dataclasses import dataclass

from pipeline.params import STRICT, Seed
from pipeline.tasks import draws
from pipeline.tasks.faults import OnBadRow
from pipeline.tasks.images import WHITE, patches_of
from pipeline.tasks.rules import BRIGHTNESS_LEVELS, lookup, mean_brightness
from pipeline.tasks.task import Block, Split, TaskData

CLASSES = 10


@dataclasses.dataclass(frozen=True)
class LabelledImages:
    """Images and their class numbers; this much is held in memory, as the files of these data sets are small."""

    images: UInt8[np.ndarray, "image row column *channel"]
    labels: UInt8[np.ndarray, " image"]


Cut = Callable[[np.ndarray], np.ndarray]
"""Images to inputs, `(image, patch, pixel)` or `(image, id)`."""


@dataclass(frozen=True, config=STRICT)
class ImageTask:
    """The settings of every task made of image files of ten classes.

    `validation` is the share held out of train; `folder` holds the files, without it they are looked for and then
    downloaded.
    """

    kind: str
    seed: Seed
    validation: Annotated[float, Field(gt=0, lt=0.5)] = dataclasses.field(default=0.1, kw_only=True)
    folder: str | None = dataclasses.field(default=None, kw_only=True)
    on_bad_row: OnBadRow = dataclasses.field(default="stop", kw_only=True)

    def data(
        self, train: LabelledImages, test: LabelledImages, image: dict[str, int], cut: Cut | None = None, **more: Any
    ) -> TaskData:
        """The task that these images are.

        `image` gives side, channels and patch in pixels; `cut` makes inputs of images, by default patches; `more` are
        the fields of `TaskData` that differ.
        """
        cut = partial(patches_of, side=image["patch"]) if cut is None else cut
        fields: dict[str, Any] = {"kind": "patches", **more}
        return TaskData(
            classes=CLASSES,
            readout=1,
            splits=image_splits(train, test, cut, self.validation, self.seed),
            image=image,
            rules={"mean brightness": lookup(mean_brightness(WHITE), BRIGHTNESS_LEVELS, CLASSES)},
            **fields,
        )


def image_splits(
    train: LabelledImages, test: LabelledImages, cut: Cut, validation: float, seed: int
) -> dict[str, Split]:
    """Train, validation and test; the share `validation` of train is drawn from the seed, never from test."""
    shuffled = draws.permutation(seed, "validation", len(train.labels))
    held = round(validation * len(shuffled))
    return {
        "train": _split(train, np.sort(shuffled[held:]), cut),
        "validation": _split(train, np.sort(shuffled[:held]), cut),
        "test": _split(test, np.arange(len(test.labels)), cut),
    }


def _split(source: LabelledImages, rows: np.ndarray, cut: Cut) -> Split:
    def read(start: int, stop: int) -> Block:
        here = rows[start:stop]
        return Block(cut(source.images[here]), source.labels[here][:, None])

    return Split(len(rows), read)
