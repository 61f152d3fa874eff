"""The fine-tune's augmentation of train images: crop, flip, rotation, as a function of (seed, step, row).

Source: the transforms of the paper's code (https://github.com/kzl/universal-computation): a crop of the image's own
size after a border of 4 black pixels, a mirror image half of the time, a rotation of up to 20 degrees with the nearest
pixel and black corners. It works on stored bytes, before normalisation, so black is 0 as there. A cache holds one
hidden state for each example and can therefore never be augmented.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64, Int64, Integer, UInt8

from pipeline.tasks import draws
from pipeline.tasks.images import images_of, patches_of

BORDER = 4
MOST_DEGREES = 20.0


def crop_flip_rotate(
    images: UInt8[np.ndarray, "row height width channel"], seed: int, step: int, rows: Integer[np.ndarray, " row"]
) -> UInt8[np.ndarray, "row height width channel"]:
    """The images of the examples `rows` as training step `step` sees them; other rows beside them change nothing."""
    drawn = draws.words(seed, f"augment/{step}", rows, 4)
    shifts = draws.below(drawn[:, :2], 2 * BORDER + 1) - BORDER
    mirrored = draws.unit(drawn[:, 2]) < 0.5
    degrees = (2 * draws.unit(drawn[:, 3]) - 1) * MOST_DEGREES
    height, width = images.shape[1:3]
    down, across = _sources(height, width, np.deg2rad(degrees))
    inside_rotated = _inside(down, height) & _inside(across, width)
    across = np.where(mirrored[:, None, None], width - 1 - across, across)
    down, across = down + shifts[:, 0, None, None], across + shifts[:, 1, None, None]
    inside = inside_rotated & _inside(down, height) & _inside(across, width)
    picked = images[np.arange(len(rows))[:, None, None], down.clip(0, height - 1), across.clip(0, width - 1)]
    return np.where(inside[..., None], picked, np.uint8(0))


def augmented_patches(
    patches: UInt8[np.ndarray, "row token feature"],
    image: dict[str, int],
    seed: int,
    step: int,
    rows: Integer[np.ndarray, " row"],
) -> UInt8[np.ndarray, "row token feature"]:
    """Stored patches of the examples `rows`, augmented; `image` is `Tokens.image`: side, channels, patch in pixels."""
    images = images_of(patches, image["side"], image["patch"], image["channels"])
    return patches_of(crop_flip_rotate(images, seed, step, rows), image["patch"])


def _inside(index: Int64[np.ndarray, "row height width"], size: int) -> np.ndarray:
    return (index >= 0) & (index < size)


def _sources(
    height: int, width: int, angles: Float64[np.ndarray, " row"]
) -> tuple[Int64[np.ndarray, "row height width"], Int64[np.ndarray, "row height width"]]:
    """For each pixel of an image turned by `angles` (radians, counter-clockwise), the row and column it comes from."""
    y, x = np.meshgrid(np.arange(height) - (height - 1) / 2, np.arange(width) - (width - 1) / 2, indexing="ij")
    cosine, sine = np.cos(angles)[:, None, None], np.sin(angles)[:, None, None]
    down = sine * x + cosine * y + (height - 1) / 2
    across = cosine * x - sine * y + (width - 1) / 2
    return np.rint(down).astype(np.int64), np.rint(across).astype(np.int64)
