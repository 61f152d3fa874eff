"""CIFAR-10 as patches: the paper's grey task, its code's colour task, and two pixel by pixel.

Source: "Pretrained Transformers as Universal Computation Engines" (arXiv 2103.05247), section 2.1: 64 tokens of 16
numbers, grey 4 × 4 patches; its code feeds 64 tokens of 48, colour patches; its "CIFAR10-LRA" (`variant: lra`) is
grey, one number a token, 1024 tokens. Normalisation is the code's: mean .4914 .4822 .4465 and deviation .2023 .1994
.2010 for colour, .5 and .5 for grey. Deviation: grey is rounded to a whole level, at most 1/255 off in the numbers that
a backbone sees. The code augments (crop, flip, rotation); `augment` asks the fine-tune to do so, a cache cannot.

The Long Range Arena's own task (arXiv 2011.04006, `lra_benchmarks/image/input_pipeline.py`), which is another one, is
`variant: lra_ids`: grey levels as 256 ids, no augmentation, 45 000 / 5000 / 10 000 images. Deviation: the 5000 are
drawn from the seed, there they are the last tenth of TensorFlow's order.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import model_validator
from pydantic.dataclasses import dataclass

from pipeline.params import STRICT
from pipeline.tasks.cifar_files import SIDE, read_batch
from pipeline.tasks.faults import BadRows
from pipeline.tasks.image_task import ImageTask, LabelledImages
from pipeline.tasks.images import WHITE, grey, grey_as_tensorflow
from pipeline.tasks.places import HERE, Places
from pipeline.tasks.sources import checksums, find_files
from pipeline.tasks.task import TaskData
from pipeline.tasks.variants import choices

VARIANTS = {
    "paper": {"color": "grey", "patch": 4, "inputs": "patches"},
    "code": {"color": "rgb", "patch": 4, "inputs": "patches"},
    "lra": {"color": "grey", "patch": 1, "inputs": "patches"},
    "lra_ids": {"color": "grey", "patch": 1, "inputs": "ids"},
}
TRAIN_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST_BATCH = "test_batch"
FOLDERS = ("cifar-10-batches-py", "cifar-10-batches-bin")
MEAN = (0.4914, 0.4822, 0.4465)
DEVIATION = (0.2023, 0.1994, 0.2010)


@dataclass(frozen=True, config=STRICT)
class Cifar10(ImageTask):
    """`color`, `patch` (side in pixels) and `inputs` are what the variants differ in.

    `folder` holds the batches, Python or binary version.
    """

    kind: Literal["cifar10"]
    variant: Literal["paper", "code", "lra", "lra_ids"]
    color: Literal["grey", "rgb"] | None = None
    patch: Literal[1, 2, 4, 8] | None = None
    inputs: Literal["patches", "ids"] | None = None
    augment: Literal["none", "crop_flip_rotate"] = "none"

    @model_validator(mode="after")
    def _fits(self) -> Cifar10:
        chosen = choices(self, VARIANTS)
        if chosen["inputs"] == "ids" and (chosen["color"], chosen["patch"], self.augment) != ("grey", 1, "none"):
            raise ValueError("inputs: ids are grey levels: they go with color: grey, patch: 1 and augment: none")
        return self

    def load(self, places: Places = HERE) -> TaskData:
        """The pictures as patches, or pixel by pixel as ids.

        Raises:
            MissingSource: the files are nowhere.
            BrokenSource: a file is not what it should be, or a label is beyond 9 while `on_bad_row` is "stop".
        """
        chosen = choices(self, VARIANTS)
        train_paths, test_paths = self._files(places)
        bad = BadRows(self.on_bad_row)
        ids = chosen["inputs"] == "ids"
        convert = grey_as_tensorflow if ids else grey if chosen["color"] == "grey" else np.asarray
        train, test = (_read(paths, convert, bad) for paths in (train_paths, test_paths))
        how = (
            {"kind": "ids", "vocabulary": WHITE + 1, "cut": lambda images: images.reshape(len(images), SIDE * SIDE)}
            if ids
            else normalisation(chosen["color"], chosen["patch"])
        )
        return self.data(
            train,
            test,
            image={"side": SIDE, "channels": 3 if chosen["color"] == "rgb" else 1, "patch": chosen["patch"]},
            source={"name": "cifar10", "files": checksums([*train_paths, *test_paths])},
            choices=chosen,
            augment=None if self.augment == "none" else self.augment,
            counts=bad.counts(),
            **how,
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


def _read(paths: list[Path], convert: Callable[[np.ndarray], np.ndarray], bad: BadRows) -> LabelledImages:
    batches = [read_batch(path, bad) for path in paths]
    images = np.concatenate([convert(batch.images) for batch in batches])
    return LabelledImages(images, np.concatenate([batch.labels for batch in batches]))
