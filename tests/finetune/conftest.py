from __future__ import annotations

import pytest
from accelerate.state import AcceleratorState

from pipeline.tasks.tokens import open_tokens


@pytest.fixture
def tokens(tiny_tokens):
    return open_tokens(tiny_tokens)


@pytest.fixture(autouse=True)
def _forget_accelerator():
    """accelerate keeps its first precision for the life of the process; a stage has one process."""
    AcceleratorState._reset_state(True)
    yield
    AcceleratorState._reset_state(True)
