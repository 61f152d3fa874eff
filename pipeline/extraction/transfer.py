"""Between host and device: copies that a GPU makes while both go on working.

Pinned memory lets a copy be queued behind the kernels in place of waiting for them. torch's allocator hands a pinned
block out again once the copy out of it is done, so that two batches under way need two blocks of each kind.

Copies share the kernels' stream. A second stream would hide them, but they are about 1 % of a forward pass at the
readouts that keep a few tokens, and what is kept of all tokens and layers is bound by the disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

T = TypeVar("T")


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """Values of the host on the device; the copy to a GPU may still be under way, for which its kernels wait."""
    if device.type != "cuda" or values.is_cuda:
        return values.to(device)
    with torch.cuda.device(device):
        return values.pin_memory().to(device, non_blocking=True)


class Arriving:
    """Hidden states on their way to the host."""

    def __init__(self, states: Float32[Tensor, "batch kept state width"]) -> None:
        """Queue the copy; `states` may be overwritten by what is queued next."""
        self._host, self._arrived = states, None
        if states.is_cuda:
            with torch.cuda.device_of(states):
                self._host = torch.empty(states.shape, dtype=states.dtype, pin_memory=True)
                self._host.copy_(states, non_blocking=True)
                self._arrived = torch.cuda.Event()
                self._arrived.record()

    def numpy(self) -> Float32[np.ndarray, "batch kept state width"]:
        """Wait until they are there."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._host.numpy()


def one_behind(items: Iterable[T]) -> Iterator[T]:
    """Give each item only after the next has been made: what it has begun may go on meanwhile."""
    held: list[T] = []
    for item in items:
        held.append(item)
        if len(held) > 1:
            yield held.pop(0)
    yield from held
