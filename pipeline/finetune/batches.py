"""Examples in memory, and which of them a step sees: a function of seed and step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Integer, Num
from torch import Tensor

from pipeline.tasks.augment import augmented_patches
from pipeline.tasks.tokens import Tokens

Augment = Callable[[np.ndarray, int], np.ndarray]
"""Rows and a step to the rows' inputs as that step sees them."""


@dataclass(frozen=True)
class Split:
    """A split as tensors; `lengths` count real tokens and are None where all examples are equally long."""

    inputs: Num[Tensor, "example token feature"] | Integer[Tensor, "example token"]
    labels: Num[Tensor, "example answer"]
    lengths: Integer[Tensor, " example"] | None = None
    augment: Augment | None = None

    def batch(self, size: int, seed: int, number: int) -> Integer[np.ndarray, " row"]:
        """The examples of one batch: epochs are seeded permutations, run together without a gap."""
        return batch_rows(len(self.labels), size, seed, number)

    def pick(self, rows: Integer[np.ndarray, " row"], step: int) -> tuple[Tensor, Tensor | None, Tensor]:
        """Inputs, lengths and labels of `rows` in step `step`."""
        picked = torch.from_numpy(rows).to(self.labels.device)
        if self.augment is None:
            lengths = None if self.lengths is None else self.lengths[picked]
            return *unpadded(self.inputs[picked], lengths), self.labels[picked]
        return torch.from_numpy(self.augment(rows, step)).to(self.labels.device), None, self.labels[picked]

    def parts(self, size: int) -> list[tuple[Tensor, Tensor | None]]:
        """The whole split's inputs and lengths in order, `size` examples at a time."""
        starts, lengths = range(0, len(self.labels), size), self.lengths
        return [unpadded(self.inputs[i : i + size], None if lengths is None else lengths[i : i + size]) for i in starts]


def unpadded(
    inputs: Num[Tensor, "batch token *feature"], lengths: Integer[Tensor, " batch"] | None
) -> tuple[Num[Tensor, "batch longest *feature"], Integer[Tensor, " batch"] | None]:
    """The batch without the padding that all its examples have."""
    return (inputs if lengths is None else inputs[:, : max(1, int(lengths.max()))]), lengths


def load_split(tokens: Tokens, name: str, seed: int, device: torch.device) -> Split:
    """Read a split whole; only train is augmented, where the task says so."""
    arrays = tokens.splits[name]
    stored = np.asarray(arrays.inputs[:])
    inputs = tokens.normalise(stored) if tokens.kind == "patches" else stored.astype(np.int32)
    labels = torch.from_numpy(arrays.read_labels().astype(np.int64 if tokens.classes else np.float32)).to(device)
    lengths = None
    if arrays.lengths is not None and not reads_at_end(tokens):
        lengths = torch.from_numpy(arrays.read_lengths().astype(np.int64)).to(device)
    augment = None
    if tokens.augment is not None and name == "train" and tokens.image is not None:
        image = tokens.image
        augment = lambda rows, step: tokens.normalise(augmented_patches(stored[rows], image, seed, step, rows))  # noqa: E731
    return Split(torch.from_numpy(inputs).to(device), labels, lengths, augment)


def reads_at_end(tokens: Tokens) -> bool:
    """Whether a task is read at its last position, where pads are ordinary tokens, as in the official code."""
    return tokens.choices.get("readout_at") == "last_position"


def batch_rows(examples: int, batch_size: int, seed: int, batch: int) -> Integer[np.ndarray, " row"]:
    """The examples of one batch: epochs are seeded permutations, run together without a gap."""
    positions = np.arange(batch * batch_size, (batch + 1) * batch_size)
    epochs, places = np.divmod(positions, examples)
    orders = {epoch: np.random.default_rng((seed, epoch)).permutation(examples) for epoch in np.unique(epochs)}
    return np.array([orders[epoch][place] for epoch, place in zip(epochs, places, strict=True)])


def dropout_seed(seed: int, step: int, process: int) -> int:
    """A seed for the dropout of one step in one process, far from those of others."""
    words = (seed, step) if process == 0 else (seed, step, process)
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0] >> np.uint64(1))
