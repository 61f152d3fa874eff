"""A split of a feature store as blocks of rows: read once and kept where it fits, read again for each pass where not.

A row is one readout position of one example: one linear layer serves all positions, as in FPT. Blocks are the same
either way, so that a sum over them has the same bits in memory and streaming.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Float32, Integer

from pipeline.features import FeatureStore

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

    def apply(self, rows: Float32[np.ndarray, "row *layer feature"]) -> Float32[np.ndarray, "row *layer feature"]:
        """Change rows, in place, to the scale where the training rows have mean 0 and spread 1."""
        rows -= self.mean
        rows *= self.scale
        return rows


@dataclass(frozen=True)
class Block:
    """Some rows of a split with the answers of each."""

    x: Float32[np.ndarray, "row *layer feature"]
    labels: Integer[np.ndarray, "row answer"]


class Rows:
    """The rows of a split, in blocks; iterate as often as needed."""

    def __init__(
        self, store: FeatureStore, split: str, memory_bytes: int = MEMORY_BYTES, examples: np.ndarray | None = None
    ) -> None:
        """Nothing is read yet but the labels.

        Args:
            store: where the features lie.
            split: `train`, `validation` or `test`.
            memory_bytes: up to this size, as float32, the rows are kept after the first pass.
            examples: which of the split's examples, sorted; all when None.
        """
        labels = store.labels(split)
        self._store, self._split = store, split
        self._examples = examples
        self._labels = labels if examples is None else labels[examples]
        self.readout, self.layers, self.width = store.shape[1], tuple(store.layers), store.shape[3]
        answers = self._labels.shape[1] // self.readout
        self.labels: Integer[np.ndarray, "row answer"] = self._labels.reshape(-1, answers)
        self.classes: int = store.attributes["classes"]
        self.bytes = 4 * len(self.labels) * len(self.layers) * self.width
        self._keep = self.bytes <= memory_bytes
        self._kept: list[Block] | None = None
        self._standardisation: Standardisation | None = None

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
        for block in self._kept or ():
            standardisation.apply(block.x)

    def __iter__(self) -> Iterator[Block]:
        """Blocks with x of shape `(row, layer, feature)`.

        Raises:
            StaleArtifact: the store is damaged.
        """
        if self._kept is not None:
            yield from self._kept
            return
        kept = []
        for block in self._read_ahead():
            if self._keep:
                kept.append(block)
            yield block
        if self._keep:
            self._kept = kept

    def layer(self, name: str) -> LayerRows:
        """The same rows with one layer's features only."""
        return LayerRows(self, self.layers.index(name))

    def _read_ahead(self) -> Iterator[Block]:
        """The next block is read while the caller works on this one."""
        step = max(1, BLOCK_BYTES // (4 * self.readout * len(self.layers) * self.width))
        starts = range(0, self.examples, step)
        with ThreadPoolExecutor(1) as reader:
            pending = [reader.submit(self._read, start, start + step) for start in starts[:1]]
            for following in [*starts[1:], None]:
                if not pending:
                    return
                block = pending.pop().result()
                if following is not None:
                    pending.append(reader.submit(self._read, following, following + step))
                yield block

    def _read(self, start: int, stop: int) -> Block:
        wanted = slice(start, stop) if self._examples is None else self._examples[start:stop]
        x = self._store.read(self._split, wanted)
        x = x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])
        labels = self.labels[start * self.readout : stop * self.readout]
        return Block(x if self._standardisation is None else self._standardisation.apply(x), labels)


@dataclass(frozen=True)
class LayerRows:
    """Rows of one layer, in blocks with x of shape `(row, feature)`."""

    rows: Rows
    index: int

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Block]:
        for block in self.rows:
            yield replace(block, x=block.x[:, self.index])

    @property
    def labels(self) -> Integer[np.ndarray, "row answer"]:
        """The answers of each row."""
        return self.rows.labels

    @property
    def classes(self) -> int:
        """Number of classes of an answer."""
        return self.rows.classes


@dataclass(frozen=True)
class ArrayRows:
    """Rows that are in memory already, in blocks of `block_rows`, or in one."""

    x: Float32[np.ndarray, "row feature"]
    labels: Integer[np.ndarray, "row answer"]
    classes: int
    block_rows: int | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[Block]:
        step = self.block_rows or max(1, len(self.labels))
        for start in range(0, len(self.labels), step):
            yield Block(self.x[start : start + step], self.labels[start : start + step])


Source = LayerRows | ArrayRows
"""What solvers take."""
