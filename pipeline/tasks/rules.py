"""Trivial rules that a task can name as its own: predictors that look at next to nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Int64

from pipeline.tasks.task import BLOCK_ROWS, Block, Predictor, Rule, Split

Key = Callable[[Block], np.ndarray]


def lookup(key: Key, keys: int, classes: int) -> Rule:
    """The class that train has most often for an example's key; for a key that train lacks, train's majority.

    Where answers are numbers it is the mean in place of the class, and train's mean in place of the majority.

    Args:
        key: gives each example of a block a number below `keys`.
        keys: how many keys there are.
        classes: how many classes there are; 0 for numbers.
    """
    if not classes:
        return _lookup_mean(key, keys)

    def fit(train: Split) -> Predictor:
        counts = np.zeros((keys, classes), np.int64)
        for block in train.blocks(BLOCK_ROWS):
            np.add.at(counts, (key(block), block.labels[:, 0]), 1)
        majority = counts.sum(axis=0).argmax()
        best = np.where(counts.any(axis=1), counts.argmax(axis=1), majority)
        return lambda block: best[key(block)][:, None]

    return fit


def _lookup_mean(key: Key, keys: int) -> Rule:
    def fit(train: Split) -> Predictor:
        counts, sums = np.zeros(keys), np.zeros(keys)
        for block in train.blocks(BLOCK_ROWS):
            counts += np.bincount(key(block), minlength=keys)
            sums += np.bincount(key(block), block.labels[:, 0].astype(np.float64), keys)
        mean = np.where(counts > 0, sums / np.maximum(counts, 1), sums.sum() / counts.sum())
        return lambda block: mean[key(block)][:, None]

    return fit


def first_id(block: Block) -> Int64[np.ndarray, " example"]:
    """The id of the first token."""
    return block.inputs[:, 0].astype(np.int64)


BRIGHTNESS_LEVELS = 32


def mean_brightness(white: int) -> Key:
    """The mean of an image's pixels in 32 levels from 0 to `white`."""

    def key(block: Block) -> Int64[np.ndarray, " example"]:
        mean = block.inputs.reshape(len(block), -1).mean(axis=1)
        return (mean * ((BRIGHTNESS_LEVELS - 1) / white)).astype(np.int64)

    return key


LENGTH_LEVELS = 32


def length_level(block: Block) -> Int64[np.ndarray, " example"]:
    """The number of real tokens, in 32 equal levels up to the longest."""
    assert block.lengths is not None
    width = block.inputs.shape[1]
    return np.minimum(block.lengths.astype(np.int64) * LENGTH_LEVELS // (width + 1), LENGTH_LEVELS - 1)
