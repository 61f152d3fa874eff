"""What a floating-point format can hold exactly, and the refusals that follow from it."""

from __future__ import annotations

import math

import torch

from pipeline.errors import PermafrostError

SIGNIFICAND_BITS = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
LAMBDA = {torch.float64: 30.0, torch.float32: 30.0, torch.float16: 12.0, torch.bfloat16: 30.0}
"""The default inverse temperature of the SUBLEQ machine's attention."""


class PrecisionError(PermafrostError):
    """A size or a temperature that the chosen dtype cannot compute exactly with."""


def name_of(dtype: torch.dtype) -> str:
    """`float32` for torch.float32."""
    return str(dtype).removeprefix("torch.")


def dtype_for(bits: int, spare: int) -> str:
    """The narrowest dtype whose significand has `bits + spare` bits, in words for an error."""
    for dtype, significand in sorted(SIGNIFICAND_BITS.items(), key=lambda item: item[1]):
        if bits + spare <= significand:
            return f"torch.{name_of(dtype)} (up to {significand - spare} bits)"
    return "none: no dtype is wide enough"


def require_float(dtype: torch.dtype) -> None:
    """Refuse a dtype of which nothing is known."""
    if dtype not in SIGNIFICAND_BITS:
        raise PrecisionError(f"{dtype} is not supported", mend=f"use one of {', '.join(map(str, SIGNIFICAND_BITS))}")


def require_word_bits(bits: int, chunk_bits: int | None, dtype: torch.dtype) -> None:
    """Refuse words, or chunks of words, whose difference the subtract layer cannot hold to 1/2.

    One chunk needs bits + 3 bits of significand, several need chunk_bits + 5 (the borrow and the doubled zero test).
    """
    significand = SIGNIFICAND_BITS[dtype]
    if chunk_bits is not None and not 1 <= chunk_bits <= significand - 5:
        raise PrecisionError(
            f"chunks of {chunk_bits} bits do not fit {name_of(dtype)}: 1 … {significand - 5} do",
            mend=f"use chunk_bits={min(16, significand - 5)}, or dtype={dtype_for(chunk_bits, 5)}",
        )
    if chunk_bits is None and bits > significand - 3:
        raise PrecisionError(
            f"{bits}-bit words do not fit {name_of(dtype)}: at most {significand - 3} bits in one chunk",
            mend=f"use dtype={dtype_for(bits, 3)}, or add layers with chunk_bits={min(16, significand - 5)}",
        )


def require_address_bits(bits: int, columns: int, dtype: torch.dtype) -> None:
    """Refuse more columns than the program counter's adder can count."""
    limit = SIGNIFICAND_BITS[dtype] - 3
    if bits > limit:
        raise PrecisionError(
            f"{columns} columns need {bits} address bits, {name_of(dtype)} holds {limit} ({2**limit} columns)",
            mend=f"use dtype={dtype_for(bits, 3)}",
        )


def require_lambda(value: float, lowest: float, why: str) -> None:
    """Refuse a temperature at which attention is not sharp enough."""
    if not value >= lowest or math.isinf(value):
        raise PrecisionError(f"lambda = {value:g} is below {lowest:.3g}, {why}", mend=f"use lambda >= {lowest:.3g}")


def require_full_precision(device: torch.device, dtype: torch.dtype) -> None:
    """Refuse a GPU that multiplies float32 matrices as TF32, which keeps 11 bits of significand."""
    if device.type == "cuda" and dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32:
        raise PrecisionError(
            "TF32 is on: float32 products would keep 11 bits", mend="torch.backends.cuda.matmul.allow_tf32 = False"
        )
