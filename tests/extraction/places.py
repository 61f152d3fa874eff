"""Where the GPU's kernels are tested: compiled on a GPU, and where there is none in Triton's interpreter on the CPU."""

from __future__ import annotations

import pytest
import torch

HAS_CUDA = torch.cuda.is_available()
CUDA = pytest.mark.skipif(not HAS_CUDA, reason="no CUDA device")
HERE = pytest.mark.skipif(HAS_CUDA, reason="kernels are compiled here, for the GPU")
PLACES = pytest.mark.parametrize(
    "place", [pytest.param("cpu", marks=HERE), pytest.param("cuda", marks=(pytest.mark.gpu, CUDA))]
)
