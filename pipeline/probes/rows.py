"""A split of a feature store as blocks of rows: read once and kept where it fits, read again for each pass where not.

A row is one readout position of one example: one linear layer serves all positions, as in FPT. Blocks are the same
either way, so that a sum over them has the same bits in memory and streaming.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Float32, Num

from pipeline.features import FeatureStore
from pipeline.probes.arrays import Array, like, place

BLOCK_BYTES = 16 << 20
"""Of float32 values in a block: large enough for fast products, small enough to hold three of them anywhere."""
MEMORY_BYTES = 1 << 30
"""Of float32 values of all splits together that are kept, unless the caller says otherwise."""


@dataclass(frozen=True)
class Standardisation:
    """Mean and 1 / spread of the training rows, layer by layer; a constant feature becomes zero."""

    mean: Float32[np.ndarray, "*layer feature"]
    scale: Float32[np.ndarray, "*layer feature"]

    @classmethod
    def of(
        cls, mean: Float[np.ndarray, "*layer feature"], spread: Float[np.ndarray, "*layer feature"]
    ) -> Standardisation:
        """A spread that is only rounding of the mean counts as none."""
        scale = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 1e-7 * np.abs(mean))
        return cls(mean.astype(np.float32), scale.astype(np.float32))

    def apply(self, rows: Array) -> Array:
        """Change rows `(row, *layer, feature)`, in place, to where the training rows have mean 0 and spread 1."""
        rows -= like(rows, self.mean)
        rows *= like(rows, self.scale)
        return rows


@dataclass(frozen=True)
class Block:
    """Some rows `(row, *layer, feature)` of a split, in float32, with their answers and what these weigh."""

    x: Array
    labels: Num[np.ndarray, "row answer"]
    weights: Float32[np.ndarray, "row answer"] | None = None

    @property
    def row_weights(self) -> Float32[np.ndarray, "row"] | None:
        """The mean weight of each row's answers."""
        return None if self.weights is None else self.weights.mean(axis=1)


class Rows:
    """The rows of a split, in blocks; iterate as often as needed."""

    def __init__(
        self,
        store: FeatureStore,
        split: str,
        memory_bytes: int = MEMORY_BYTES,
        examples: np.ndarray | None = None,
        device: str | None = None,
    ) -> None:
        """Nothing is read yet but the labels.

        Args:
            store: where the features lie.
            split: `train`, `validation` or `test`.
            memory_bytes: up to this size, as float32, the rows are kept after the first pass.
            examples: which of the split's examples, sorted; all when None.
            device: the torch device that blocks are put on; None for numpy.
        """
        labels = store.labels(split)
        self._store, self._split, self.path = store, split, store.path
        self._examples = examples
        self._labels = labels if examples is None else labels[examples]
        self.readout, self.layers, self.width = store.shape[1], tuple(store.layers), store.shape[3]
        answers = self._labels.shape[1] // self.readout
        self.labels: Num[np.ndarray, "row answer"] = self._labels.reshape(-1, answers)
        self.classes: int = store.attributes["classes"]
        self.class_weights: Float32[np.ndarray, "class"] | None = None
        self.bytes = 4 * len(self.labels) * len(self.layers) * self.width
        self._keep = self.bytes <= memory_bytes
        self._device = device
        self._kept: list[Block] | None = None
        self._standardisation: Standardisation | None = None
        self._kept_as_cached = False

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def examples(self) -> int:
        """How many examples the rows belong to."""
        return len(self._labels)

    def standardise(self, standardisation: Standardisation) -> None:
        """Give standardised rows from now on.

        Args:
            standardisation: with a mean and a scale for each `(layer, feature)`.
        """
        assert self._standardisation is None, "rows are standardised once"
        self._standardisation = standardisation
        self._kept_as_cached = self._kept is not None

    def __iter__(self) -> Iterator[Block]:
        """Blocks with x of shape `(row, layer, feature)`.

        Raises:
            StaleArtifact: the store is damaged.
        """
        if self._kept is not None:
            for block in self._kept if self._kept_as_cached else ():
                assert self._standardisation is not None
                self._standardisation.apply(block.x)
            self._kept_as_cached = False
            yield from self._kept
            return
        kept = []
        for block in self.read_blocks(range(self.blocks)):
            if self._keep:
                kept.append(block)
            yield block
        if self._keep:
            self._kept = kept

    def first(self) -> Float32[np.ndarray, "layer feature"]:
        """The first row as it was cached."""
        return self._store.read(self._split, slice(0, 1) if self._examples is None else self._examples[:1])[0, 0]

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return -(-self.examples // self._step)

    def read_blocks(self, wanted: range) -> Iterator[Block]:
        """Some blocks by number; nothing is kept. The next one is read while the caller works on this one."""
        with ThreadPoolExecutor(1) as reader:
            pending = [reader.submit(self._read, number) for number in wanted[:1]]
            for following in [*wanted[1:], None]:
                if not pending:
                    return
                block = pending.pop().result()
                if following is not None:
                    pending.append(reader.submit(self._read, following))
                yield block

    def layer(self, name: str) -> LayerRows:
        """The same rows with one layer's features only."""
        return LayerRows(self, self.layers.index(name))

    def every_layer(self) -> LayerRows:
        """The same rows with all layers' features side by side."""
        return LayerRows(self)

    @property
    def _step(self) -> int:
        return max(1, BLOCK_BYTES // (4 * self.readout * len(self.layers) * self.width))

    def _read(self, number: int) -> Block:
        start, stop = number * self._step, (number + 1) * self._step
        wanted = slice(start, stop) if self._examples is None else self._examples[start:stop]
        x = self._store.read(self._split, wanted)
        x = x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])
        if self._standardisation is not None:
            self._standardisation.apply(x)
        labels = self.labels[start * self.readout : stop * self.readout]
        weights = None if self.class_weights is None else self.class_weights[labels]
        return Block(place(x, self._device), labels, weights)


class LayerRows:
    """Rows of one layer, or of chosen features of all layers, in blocks with x of shape `(row, feature)`."""

    def __init__(self, rows: Rows, layer: int | None = None, features: np.ndarray | None = None) -> None:
        """Without a layer, `features` are places in all layers' features side by side; all of them when None."""
        self._rows, self._layer, self._features = rows, layer, features
        self.width = rows.width if layer is not None else len(rows.layers) * rows.width
        if features is not None:
            self.width = len(features)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Block]:
        for block in self._rows:
            if self._layer is not None:
                x = block.x[:, self._layer]
            else:
                flat = block.x.reshape(len(block.x), -1)
                x = flat if self._features is None else flat[:, self._features]
            yield replace(block, x=x)

    @property
    def labels(self) -> Num[np.ndarray, "row answer"]:
        """The answers of each row."""
        return self._rows.labels

    @property
    def classes(self) -> int:
        """Number of classes of an answer; 0 where answers are numbers."""
        return self._rows.classes

    @property
    def class_weights(self) -> Float32[np.ndarray, "class"] | None:
        """What answers of each class weigh."""
        return self._rows.class_weights


@dataclass(frozen=True)
class ArrayRows:
    """Rows that are in memory already, in blocks of `block_rows`, or in one."""

    x: Array
    labels: Num[np.ndarray, "row answer"]
    classes: int
    block_rows: int | None = None
    class_weights: Float32[np.ndarray, "class"] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[Block]:
        step = self.block_rows or max(1, len(self.labels))
        for start in range(0, len(self.labels), step):
            labels = self.labels[start : start + step]
            weights = None if self.class_weights is None else self.class_weights[labels]
            yield Block(self.x[start : start + step], labels, weights)

    @property
    def width(self) -> int:
        """Number of features."""
        return self.x.shape[1]


Source = LayerRows | ArrayRows
"""What solvers take."""
