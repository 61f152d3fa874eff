"""CUDA graphs: a forward pass recorded for one shape and launched by one call, for shapes that come again.

A small batch keeps a GPU shorter than Python takes to launch its kernels one by one. Shapes are recorded as they are,
never rounded up: padding would change which kernels run, and so low bits of what is stored.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float32, Num
from torch import Tensor

Inputs = Num[Tensor, "batch token *feature"]
States = Float32[Tensor, "batch kept state width"]
Forward = Callable[[Tensor], Tensor]
Record = Callable[[Forward, Tensor], Forward]

AFTER = 3
"""A shape is recorded when it comes for the time after so many: recording costs about five passes."""
MOST = 8
"""So many graphs are held; the one that was used longest ago makes room."""
WARM_UPS = 2
"""Passes before recording, in which libraries choose and compile their kernels."""


class GraphCache:
    """`forward`, launched through a graph where its inputs' shape has come often enough.

    `forward` must give the same operations for the same shape, whatever the numbers. A graph is used only if its first
    result has the very bits of the pass without it; where it has not, or cannot be recorded, the shape stays without.
    """

    def __init__(self, forward: Forward, record: Record, after: int = AFTER, most: int = MOST) -> None:
        """`record` makes a graph of `forward` for inputs like a given one."""
        self.forward, self.record, self.after, self.most = forward, record, after, most
        self.graphs: OrderedDict[Any, Forward] = OrderedDict()
        self._seen: Counter[Any] = Counter()
        self._refused: set[Any] = set()

    def __call__(self, inputs: Inputs) -> States:
        """`forward(inputs)`."""
        shape = (*inputs.shape, inputs.dtype)
        if shape in self.graphs:
            self.graphs.move_to_end(shape)
            return self.graphs[shape](inputs)
        self._seen[shape] += 1
        states = self.forward(inputs)
        if self._seen[shape] > self.after and shape not in self._refused:
            self._add(shape, inputs, states)
        return states

    def _add(self, shape: Any, inputs: Tensor, states: Tensor) -> None:
        try:
            graph = self.record(self.forward, inputs)
            same = torch.equal(graph(inputs).view(torch.int32), states.view(torch.int32))
            fault = None if same else "its numbers differ in low bits"
        except RuntimeError as error:  # also that the GPU has no memory for it
            graph, fault = None, str(error).strip().partition("\n")[0]
        if graph is None or fault is not None:
            self._refused.add(shape)
            print(f"no CUDA graph for batches of shape {tuple(inputs.shape)}, which is slower: {fault}", flush=True)
            return
        self.graphs[shape] = graph
        if len(self.graphs) > self.most:
            dropped, _ = self.graphs.popitem(last=False)
            self._seen[dropped] = 0


class CudaRecorder:
    """Records graphs on the current CUDA device.

    All share one pool of memory for what lives within a pass: they run one at a time, in one stream.
    """

    def __init__(self) -> None:
        self.pool, self.stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()

    def __call__(self, forward: Forward, inputs: Inputs) -> Forward:
        """A graph of `forward` for inputs of this shape; what it gives is the caller's own."""
        static = inputs.clone()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for _ in range(WARM_UPS):
                forward(static)
        torch.cuda.current_stream().wait_stream(self.stream)
        graph = torch.cuda.CUDAGraph()
        # Other threads of a worker may go on: only this one's calls have to be recordable.
        with torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"):
            states = forward(static)

        def replay(inputs: Tensor) -> Tensor:
            static.copy_(inputs)
            graph.replay()
            return states.clone()

        return replay
