"""CIFAR-10 as patches: the paper's grey task, its code's colour task, and the Long Range Arena's pixel by pixel.

Source: "Pretrained Transformers as Universal Computation Engines" (arXiv 2103.05247), section 2.1: 64 tokens of 16
numbers, grey 4 × 4 patches; its code feeds 64 tokens of 48, colour patches; its "CIFAR10-LRA" is grey, one pixel a
token, 1024 tokens. Normalisation is the code's: mean .4914 .4822 .4465 and deviation .2023 .1994 .2010 for colour, .5
and .5 for grey. Deviation: grey is rounded to a whole level, at most 1/255 off in the numbers that a backbone sees.
The code augments (crop, flip, rotation); `augment` asks the fine-tune to do so, a cache cannot.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from pipeline.params import STRICT
from pipeline.tasks.cifar_files import CLASSES, SIDE, read_batch
from pipeline.tasks.faults import BadRows, OnBadRow
from pipeline.tasks.images import LabelledImages, grey, image_splits
from pipeline.tasks.places import HERE, Places
from pipeline.tasks.rules import BRIGHTNESS_LEVELS, lookup, mean_brightness
from pipeline.tasks.sources import checksums, find_files
from pipeline.tasks.task import TaskData
from pipeline.tasks.variants import choices

VARIANTS = {
    "paper": {"color": "grey", "patch": 4},
    "code": {"color": "rgb", "patch": 4},
    "lra": {"color": "grey", "patch": 1},
}
TRAIN_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST_BATCH = "test_batch"
FOLDERS = ("cifar-10-batches-py", "cifar-10-batches-bin")
MEAN = (0.4914, 0.4822, 0.4465)
DEVIATION = (0.2023, 0.1994, 0.2010)
WHITE = 255


@dataclass(frozen=True, config=STRICT)
class Cifar10:
    """`color` and `patch` (side in pixels) are what the variants differ in; `validation` is a share of train.

    `folder` holds the batches, Python or binary version; without it they are looked for and then downloaded.
    """

    kind: Literal["cifar10"]
    seed: int
    variant: Literal["paper", "code", "lra"]
    color: Literal["grey", "rgb"] | None = None
    patch: Literal[1, 2, 4, 8] | None = None
    augment: Literal["none", "crop_flip_rotate"] = "none"
    validation: Annotated[float, Field(gt=0, lt=0.5)] = 0.1
    folder: str | None = None
    on_bad_row: OnBadRow = "stop"

    def load(self, places: Places = HERE) -> TaskData:
        """The pictures as patches.

        Raises:
            MissingSource: the files are nowhere.
            BrokenSource: a file is not what it should be, or a label is beyond 9 while `on_bad_row` is "stop".
        """
        chosen = choices(self, VARIANTS)
        train_paths, test_paths = self._files(places)
        bad = BadRows(self.on_bad_row)
        train, test = (_read(paths, chosen["color"], bad) for paths in (train_paths, test_paths))
        return TaskData(
            kind="patches",
            classes=CLASSES,
            readout=1,
            splits=image_splits(train, test, chosen["patch"], self.validation, self.seed),
            source={"name": "cifar10", "files": checksums([*train_paths, *test_paths])},
            choices=chosen,
            image={"side": SIDE, "channels": 3 if chosen["color"] == "rgb" else 1, "patch": chosen["patch"]},
            augment=None if self.augment == "none" else self.augment,
            rules={"mean brightness": lookup(mean_brightness(WHITE), BRIGHTNESS_LEVELS, CLASSES)},
            counts=bad.counts(),
            **normalisation(chosen["color"], chosen["patch"]),
        )

    def _files(self, places: Places) -> tuple[list[Path], list[Path]]:
        base = places.cache if self.folder is None else Path(self.folder)
        folders = [base, *(base / name for name in FOLDERS)]
        binary = [folder for folder in folders if (folder / f"{TRAIN_BATCHES[0]}.bin").exists()]
        pickled = [folder for folder in folders if (folder / TRAIN_BATCHES[0]).exists()]
        names = [f"{name}.bin" if binary and not pickled else name for name in (*TRAIN_BATCHES, TEST_BATCH)]
        there = [*pickled, *binary]
        own = str(there[0]) if there else self.folder

        def download(cache: Path) -> Path:
            import torchvision.datasets

            torchvision.datasets.CIFAR10(cache, download=True)
            return cache / FOLDERS[0]

        found = find_files(names, own, [base / FOLDERS[0]], places, download)
        return [found[name] for name in names[:-1]], [found[names[-1]]]


def normalisation(color: str, patch: int) -> dict[str, Any]:
    """`offset` and `scale` of stored bytes, one for each feature of a colour patch."""
    if color == "grey":
        return {"offset": 0.5 * WHITE, "scale": 1 / (0.5 * WHITE)}
    pixels = patch * patch
    return {
        "offset": [WHITE * mean for mean in MEAN] * pixels,
        "scale": [1 / (WHITE * deviation) for deviation in DEVIATION] * pixels,
    }


def _read(paths: list[Path], color: str, bad: BadRows) -> LabelledImages:
    batches = [read_batch(path, bad) for path in paths]
    images = [grey(batch.images) if color == "grey" else batch.images for batch in batches]
    return LabelledImages(np.concatenate(images), np.concatenate([batch.labels for batch in batches]))
