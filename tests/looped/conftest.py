"""One thread for all tests here: the matrices are small, and threads would mostly wait for each other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from jaxtyping import config


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def _no_shape_checks() -> Iterator[None]:
    """For tests of thousands of loops, in which checking shapes takes most of the time; other tests check the same."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)
