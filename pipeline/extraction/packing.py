"""Rows of different length without their padding, so that products are computed for real tokens only."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from pipeline.extraction.transfer import to_device


class Packing:
    """Where each real token of a padded batch stands when the real ones are laid end to end.

    Padding is on the right, so that a token's place in its row is also its place among the row's real tokens.
    """

    def __init__(self, mask: Bool[Tensor, "batch token"]) -> None:
        self.batch, self.tokens = mask.shape
        self.index = mask.flatten().nonzero()[:, 0]
        lengths = mask.sum(dim=1)
        self.starts: Int64[Tensor, " batch"] = lengths.cumsum(0) - lengths

    def pack(self, x: Float[Tensor, "batch token width"]) -> Float[Tensor, "1 real width"]:
        """The real tokens, end to end."""
        return x.flatten(0, 1).index_select(0, self.index)[None]

    def unpack(self, x: Float[Tensor, "1 real width"]) -> Float[Tensor, "batch token width"]:
        """The padded batch again, zeros at padding."""
        padded = x.new_zeros(self.batch * self.tokens, x.shape[-1])
        padded.index_copy_(0, self.index, x[0])  # whole rows; indexing would go number by number
        return padded.unflatten(0, (self.batch, self.tokens))

    def take(
        self, x: Float[Tensor, "1 real width"], positions: Int64[Tensor, "batch kept"]
    ) -> Float[Tensor, "batch kept width"]:
        """The vectors at each row's own positions, which must be real."""
        return x[0].index_select(0, (self.starts[:, None] + positions).flatten()).unflatten(0, positions.shape)

    def to(self, device: torch.device) -> Packing:
        """The same for batches on `device`. To find the places there would wait for all that a GPU has yet to do."""
        self.index, self.starts = to_device(self.index, device), to_device(self.starts, device)
        return self
