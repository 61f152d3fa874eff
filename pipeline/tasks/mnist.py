"""MNIST and Fashion-MNIST as patches.

Source: "Pretrained Transformers as Universal Computation Engines" (arXiv 2103.05247), section 2.1, whose 64 tokens of
4 × 4 pixels need images of 32 × 32; its code cuts the images as they come, 28 × 28, into 49 tokens. `variant` sets
`side` to the one or the other. Pixels are divided by 255, as in the code (mean 0, deviation 1).
Files: IDX, of MNIST (http://yann.lecun.com/exdb/mnist) or of Fashion-MNIST; Debian's package `dataset-fashion-mnist`
installs the latter.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from pydantic.dataclasses import dataclass

from pipeline.params import STRICT
from pipeline.tasks.faults import BadRows, BrokenSource
from pipeline.tasks.idx import read_idx
from pipeline.tasks.image_task import CLASSES, ImageTask, LabelledImages
from pipeline.tasks.images import WHITE, padded
from pipeline.tasks.places import HERE, Places
from pipeline.tasks.sources import checksums, find_files
from pipeline.tasks.task import TaskData
from pipeline.tasks.variants import choices

VARIANTS = {"paper": {"side": 32}, "code": {"side": 28}}
FILES = tuple(f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))
DEBIAN_FASHION = Path("/usr/share/datasets/fashion-mnist")
SIDE = 28


@dataclass(frozen=True, config=STRICT)
class Mnist(ImageTask):
    """`side` of the images in pixels, after a black border, and of a `patch`; `folder` holds the four IDX files."""

    kind: Literal["mnist", "fashion_mnist"]
    variant: Literal["paper", "code"]
    side: Literal[28, 32] | None = None
    patch: Literal[1, 2, 4] = 4

    def load(self, places: Places = HERE) -> TaskData:
        """The images as patches.

        Raises:
            MissingSource: the files are nowhere.
            BrokenSource: a file is not what it should be, or a label is beyond 9 while `on_bad_row` is "stop".
        """
        chosen = choices(self, VARIANTS)
        paths = self._files(places)
        bad = BadRows(self.on_bad_row)
        train, test = (read_images(paths, part, bad, chosen["side"]) for part in ("train", "t10k"))
        return self.data(
            train,
            test,
            image={"side": chosen["side"], "channels": 1, "patch": self.patch},
            scale=1 / WHITE,
            source={"name": self.kind, "files": checksums(paths.values())},
            choices=chosen,
            counts=bad.counts(),
        )

    def _files(self, places: Places) -> dict[str, Path]:
        name = {"mnist": "MNIST", "fashion_mnist": "FashionMNIST"}[self.kind]
        cached = places.cache / name / "raw"  # torchvision's layout
        known = [DEBIAN_FASHION, cached] if self.kind == "fashion_mnist" else [cached]

        def download(cache: Path) -> Path:
            import torchvision.datasets

            getattr(torchvision.datasets, name)(cache, download=True)
            return cached

        return find_files(FILES, self.folder, known, places, download, compressed=True)


def read_images(paths: dict[str, Path], part: str, bad: BadRows, side: int) -> LabelledImages:
    """The images and labels of `part` ("train" or "t10k") with a border that makes them `side` pixels a side.

    Raises:
        BrokenSource: as `read_idx`; or images and labels differ in number; or the images are not 28 × 28.
    """
    image_path, label_path = (paths[f"{part}-{kind}-ubyte"] for kind in ("images-idx3", "labels-idx1"))
    images, labels = read_idx(image_path, axes=3), read_idx(label_path, axes=1)
    if len(images) != len(labels):
        raise BrokenSource(f"{image_path} has {len(images)} images, {label_path} has {len(labels)} labels")
    if images.shape[1:] != (SIDE, SIDE):
        raise BrokenSource(f"{image_path} has images of {images.shape[1]} × {images.shape[2]} pixels, not 28 × 28")
    for row in np.flatnonzero(labels >= CLASSES):
        bad.add(label_path, f"row {row}", f"label {labels[row]} is not one of 0 to {CLASSES - 1}")
    good = labels < CLASSES
    return LabelledImages(padded(images[good], side), labels[good])
