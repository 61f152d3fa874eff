"""What all tests share: one thread a process, since tests run side by side, and tiny backbones and tasks."""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch and numpy are imported
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"

from pathlib import Path

import pytest
import torch

from tests import tiny

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # the GPU's kernels run in Triton's interpreter, on tensors of the CPU


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as `save_pretrained` writes it, with a BERT of 2 layers and width 32."""
    return tiny.write_bert(tmp_path_factory.mktemp("tiny-bert"), seed=0)


@pytest.fixture(scope="session")
def tiny_tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tokens of a bit XOR over 2 × 3 bits: 64 inputs of 6 tokens, 3 of them answers."""
    return tiny.write_xor(tmp_path_factory.mktemp("tokens") / "xor", bits=3)
