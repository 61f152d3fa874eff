"""Keeps freed memory in the process instead of handing it back to the system after every operation.

A forward pass frees and allocates the same few large tensors over and over. By default glibc maps and unmaps each, and
the system zeroes every page anew: 3 % of a pass of GPT-2 on two cores. Elsewhere than on glibc nothing is done.
"""

from __future__ import annotations

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LARGEST_HELD = 1 << 30
"""Larger blocks are still mapped one by one, and given back when they are freed."""


def keep_freed_memory() -> bool:
    """Ask glibc to reuse freed blocks; whether it will. No result depends on it."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LARGEST_HELD)) and bool(mallopt(M_TRIM_THRESHOLD, 2**31 - 1))


def return_freed_memory() -> None:
    """Hand back what was freed so far, on glibc: after work that needs much memory once."""
    if sys.platform.startswith("linux") and hasattr(ctypes.CDLL(None), "malloc_trim"):
        ctypes.CDLL(None).malloc_trim(0)
