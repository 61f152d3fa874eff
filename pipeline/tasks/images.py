"""Images as tokens: square patches in raster order, and grey from colour."""

from __future__ import annotations

import numpy as np
from jaxtyping import UInt8

WHITE = 255
GREY_WEIGHTS = np.array([0.2989, 0.587, 0.114])


def patches_of(
    images: UInt8[np.ndarray, "image row column *channel"], side: int
) -> UInt8[np.ndarray, "image patch pixel"]:
    """Cut images into patches of `side` × `side` pixels, left to right, top to bottom.

    Each patch is flattened as row, column, channel: the order `(p1 p2 c)` of the paper's code.
    """
    count, height, width, *channels = images.shape
    depth = channels[0] if channels else 1
    tiles = images.reshape(count, height // side, side, width // side, side, depth)
    return tiles.transpose(0, 1, 3, 2, 4, 5).reshape(count, height * width // side**2, side * side * depth)


def images_of(
    patches: UInt8[np.ndarray, "image patch pixel"], height: int, side: int, channels: int
) -> UInt8[np.ndarray, "image row column channel"]:
    """The square images of `height` pixels a side that `patches_of` cut."""
    across = height // side
    tiles = patches.reshape(len(patches), across, across, side, side, channels)
    return tiles.transpose(0, 1, 3, 2, 4, 5).reshape(len(patches), height, height, channels)


def grey(images: UInt8[np.ndarray, "image row column 3"]) -> UInt8[np.ndarray, "image row column"]:
    """Luma with torchvision's weights (.2989, .587, .114), rounded to whole levels so that a byte holds it."""
    return np.rint(images @ GREY_WEIGHTS).astype(np.uint8)


def grey_as_tensorflow(images: UInt8[np.ndarray, "image row column 3"]) -> UInt8[np.ndarray, "image row column"]:
    """Luma as `tf.image.rgb_to_grayscale` makes it of bytes: in float32, times 255.5, cut off."""
    unit = images.astype(np.float32) * np.float32(1 / WHITE)
    return (unit @ GREY_WEIGHTS.astype(np.float32) * np.float32(WHITE + 0.5)).astype(np.uint8)


def padded(images: UInt8[np.ndarray, "image row column"], side: int) -> UInt8[np.ndarray, "image {side} {side}"]:
    """Images with a black border of equal width, `side` pixels a side in all."""
    margin = (side - images.shape[1]) // 2
    return np.pad(images, ((0, 0), (margin, margin), (margin, margin)))
