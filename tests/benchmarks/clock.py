"""Seconds of a function on a CPU or a GPU, several functions in turns so that a slow moment strikes each alike."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from pipeline.extraction.graphs import CudaRecorder

REPEATS = 10
"""Calls between two readings of a GPU's clock: so many are queued that the first one's launch does not count."""
WARM_UP_ROUNDS = {"cpu": 1, "cuda": 2}
"""On a GPU kernels are compiled and graphs recorded in the first; its clock frequency rises in the second."""


def seconds_of(function: Callable[[], Any], device: torch.device) -> float:
    """Of one call: by the host's clock on a CPU, on a GPU by events around several calls in a stream."""
    if device.type != "cuda":
        start = time.perf_counter()
        function()
        return time.perf_counter() - start
    with torch.cuda.device(device):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        first.record()
        for _ in range(REPEATS):
            function()
        last.record()
        last.synchronize()
        return first.elapsed_time(last) / 1000 / REPEATS


def interleaved(functions: dict[str, Callable[[], Any]], rounds: int, device: torch.device) -> dict[str, float]:
    """Median seconds of each function over `rounds`, after rounds to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    warm = WARM_UP_ROUNDS[device.type]
    for turn in range(rounds + warm):
        for name, function in functions.items():
            taken = seconds_of(function, device)
            if turn >= warm:
                seconds[name].append(taken)
    return {name: float(np.median(times)) for name, times in seconds.items()}


def without_launches(products: Callable[[], torch.Tensor], device: torch.device) -> Callable[[], Any]:
    """Products as one CUDA graph: launched one by one they would be measured at the speed of Python."""
    if device.type != "cuda":
        return products
    with torch.cuda.device(device), torch.inference_mode():
        nothing = torch.empty(1, device=device)
        graph = CudaRecorder()(lambda _: products(), nothing)

    @torch.inference_mode()
    def replay() -> torch.Tensor:
        return graph(nothing)

    return replay


def matmul_flops_per_second(device: torch.device) -> float:
    """What one square bfloat16 product reaches that is large enough to fill any GPU."""
    size = 8192
    a, b = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    seconds = interleaved({"product": lambda: a @ b}, 3, device)["product"]
    return 2 * size**3 / seconds
