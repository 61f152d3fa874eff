"""One step of the fast path recorded as a CUDA graph: its many small kernels are launched by one call."""

from __future__ import annotations

from dataclasses import fields

import torch

from pipeline.errors import PermafrostError
from pipeline.looped.fast_path import FastPath, Parts


class GraphedStep:
    """`step` of a FastPath for batches of one size; returns buffers of its own that the next call overwrites."""

    def __init__(self, path: FastPath, parts: Parts) -> None:
        """Warm up and record.

        Raises:
            PermafrostError: the state is not on a CUDA device.
        """
        if not parts.scratch.is_cuda:
            raise PermafrostError("CUDA graphs need a machine on a GPU", mend="SubleqMachine(..., device='cuda')")
        self._input = Parts(*(getattr(parts, field.name).clone() for field in fields(parts)))
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), torch.inference_mode():
            for _ in range(3):
                path.step(self._input)
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.inference_mode(), torch.cuda.graph(self._graph):
            self._output = path.step(self._input)

    def __call__(self, parts: Parts) -> Parts:
        """Execute one instruction of every program."""
        for field in fields(parts):
            source = getattr(parts, field.name)
            if field.name != "commands":  # the code never changes
                getattr(self._input, field.name).copy_(source)
        self._graph.replay()
        return self._output
