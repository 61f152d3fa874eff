"""Compile every variant of the GPU's kernels for Ampere and Hopper, which needs no GPU.

python -m tests.extraction.compiled

Prints how many, and fails where one does not compile or its memory accesses are not vectorised.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import product
from typing import Any

os.environ.pop("TRITON_INTERPRET", None)  # before triton is imported

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from pipeline.extraction import fused

POINTERS = {"stream": "*fp32", "weight": "*fp32", "bias": "*fp32", "width": "i32", "eps": "fp32"}


def variants() -> Iterator[tuple[Any, dict[str, str], dict[str, Any]]]:
    """Kernel, dtypes of its operands, and its constants."""
    for half in ("bf16", "fp16", "fp32"):
        for has_added, has_bias, rms, postnorm in product((False, True), repeat=4):
            if (has_added or not postnorm) and not (rms and has_bias):
                flags = {"has_added": has_added, "has_bias": has_bias, "rms": rms, "postnorm": postnorm, "block": 1024}
                yield fused.add_norm_kernel, {**POINTERS, "added": f"*{half}", "out": f"*{half}"}, flags
        for activation, gated in product(("gelu", "gelu_tanh", "silu", "relu"), (False, True)):
            types = {"x": f"*{half}", "out": f"*{half}", "width": "i32"}
            yield fused.activate_kernel, types, {"activation": activation, "gated": gated, "block": fused.COLUMNS}


def main() -> None:
    """Compile all of them."""
    count = 0
    for kernel, types, constants in variants():
        signature = {name: types.get(name, "constexpr") for name in kernel.arg_names}
        # As torch's allocator and a width that 16 divides let a launch see them.
        aligned = {
            (place,): [["tt.divisibility", 16]] for place, kind in enumerate(signature.values()) if kind[0] in "*i"
        }
        source = ASTSource(kernel, signature, constants, aligned)
        for architecture in (80, 90):
            made = triton.compile(source, GPUTarget("cuda", architecture, 32), dict(fused.OPTIONS))
            code = made.asm["ptx"]
            assert "ld.global.v" in code, (kernel, constants)
            assert "st.global.v" in code, (kernel, constants)
            rounds = "*bf16" in types.values() and constants.get("activation") != "relu"
            assert "cvt.rn.bf16" in code or not rounds, "bfloat16 is rounded, not cut off"
            count += 1
    print(f"{count} kernels")


if __name__ == "__main__":
    main()
