"""Compile the GPU's kernels for Ampere and Hopper, as the engine launches them; that needs no GPU.

python -m tests.extraction.compiled

Prints how many, and fails where one does not compile, or reads and writes memory number by number.
"""

from __future__ import annotations

import os
from itertools import product
from typing import Any

os.environ.pop("TRITON_INTERPRET", None)  # before triton is imported

import torch
from torch import nn
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from pipeline.backbones.transformer import RmsNorm
from pipeline.extraction import fused

ARCHITECTURES = (80, 90)
compiled: list[Any] = []


class NoGpu:
    """Stands in for a CUDA driver: what a launch asks of it before it launches."""

    def __init__(self, device: int) -> None:
        self.device = device

    def get_current_device(self) -> int:
        """Triton keeps the kernels of each device apart."""
        return self.device

    def get_current_stream(self, device: int) -> int:
        """Of any device."""
        return 0 * device

    def get_current_target(self) -> GPUTarget:
        """What to compile for."""
        return GPUTarget("cuda", ARCHITECTURES[self.device], 32)


def compile_only(kernel: Any) -> None:
    """Let launches of a kernel end where it is compiled."""
    launch = kernel.run

    def run(*arguments: Any, warmup: bool, **options: Any) -> None:
        compiled.append(launch(*arguments, warmup=True, **options))

    kernel.run = run


@torch.no_grad()
def launch_all() -> None:
    """Every variant, at the widths of MiniLM, GPT-2 and Llama."""
    for width, dtype in product((384, 768, 4096), (torch.bfloat16, torch.float16, torch.float32)):
        stream, added = torch.zeros(4, 7, width), torch.zeros(4, 7, width, dtype=dtype)
        for norm in (nn.LayerNorm(width), nn.LayerNorm(width, bias=False), RmsNorm(width)):
            fused.FusedNorm(norm, dtype, postnorm=False)(stream)
            for postnorm in (False, True):
                fused.FusedNorm(norm, dtype, postnorm)(stream, added)
        for activation in ("gelu", "gelu_tanh", "silu", "relu"):
            fused.activate_(added, activation)
            fused.activate_gated(torch.cat([added, added], dim=-1), activation)


def main() -> None:
    """Compile all of them."""
    for kernel in (fused.add_norm_kernel, fused.activate_kernel):
        compile_only(kernel)
    for device in range(len(ARCHITECTURES)):
        driver.set_active(NoGpu(device))
        launch_all()
    for kernel in compiled:
        code = kernel.asm["ptx"]
        assert "ld.global.v" in code, kernel.metadata
        assert "st.global.v" in code, kernel.metadata
        assert not kernel.metadata.enable_fp_fusion
    print(f"{len(compiled)} launches, {len({kernel.hash for kernel in compiled})} kernels")


if __name__ == "__main__":
    main()
