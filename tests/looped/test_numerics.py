"""What a dtype cannot hold is refused, with the limit and the dtype that would do."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch

from pipeline.looped.fleq import FleqMachine
from pipeline.looped.fleq_layout import FleqSizes
from pipeline.looped.layout import Sizes
from pipeline.looped.library import subleq_program
from pipeline.looped.numerics import PrecisionError, require_full_precision
from pipeline.looped.subleq import SubleqMachine


@pytest.mark.parametrize(
    ("dtype", "limit", "wider"),
    [
        (torch.float64, 50, "none: no dtype"),
        (torch.float32, 21, "torch.float64"),
        (torch.float16, 8, "torch.float32"),
        (torch.bfloat16, 5, r"torch\.float16 \(up to 8 bits\)"),
    ],
)
def test_words_that_do_not_fit(dtype: torch.dtype, limit: int, wider: str) -> None:
    SubleqMachine(Sizes(5, 5, limit), dtype)
    message = (
        rf"{limit + 1}-bit words do not fit \w+: at most {limit} bits in one chunk(.|\n)*{wider}(.|\n)*chunk_bits="
    )
    with pytest.raises(PrecisionError, match=message):
        SubleqMachine(Sizes(5, 5, limit + 1), dtype)


@pytest.mark.parametrize(("dtype", "limit"), [(torch.bfloat16, 3), (torch.float16, 6), (torch.float32, 19)])
def test_chunks_that_do_not_fit(dtype: torch.dtype, limit: int) -> None:
    SubleqMachine(Sizes(5, 5, 40), dtype, chunk_bits=limit)
    with pytest.raises(PrecisionError, match=rf"chunks of {limit + 1} bits do not fit \w+: 1 … {limit} do"):
        SubleqMachine(Sizes(5, 5, 40), dtype, chunk_bits=limit + 1)


@pytest.mark.parametrize(("dtype", "bits"), [(torch.bfloat16, 5), (torch.float16, 8)])
def test_addresses_that_do_not_fit(dtype: torch.dtype, bits: int) -> None:
    SubleqMachine(Sizes(2**bits - 4, 3, 4), dtype)
    with pytest.raises(PrecisionError, match=rf"need {bits + 1} address bits, \w+ holds {bits}(.|\n)*use dtype=torch"):
        SubleqMachine(Sizes(2**bits - 3, 3, 4), dtype)


def test_lambda_below_the_limit_is_refused() -> None:
    sizes = Sizes(20, 43, 8)
    lowest = math.log(8 * 64)
    SubleqMachine(sizes, scale=lowest)
    with pytest.raises(PrecisionError, match=r"lambda = 6\.2 is below 6\.24, ln\(8 n\) for n = 64"):
        SubleqMachine(sizes, scale=6.2)
    with pytest.raises(PrecisionError, match="lambda = nan"):
        SubleqMachine(sizes, scale=math.nan)


def test_other_arguments_are_refused() -> None:
    with pytest.raises(PrecisionError, match=r"torch\.int32 is not supported"):
        SubleqMachine(Sizes(5, 5, 8), torch.int32)
    with pytest.raises(PrecisionError, match="unknown read 'tied'"):
        SubleqMachine(Sizes(5, 5, 8), read="tied")
    with pytest.raises(PrecisionError, match="words have 2 … 63 bits, not 64"):
        SubleqMachine(Sizes(5, 5, 64))


@pytest.fixture
def _tf32() -> Iterator[None]:
    torch.backends.cuda.matmul.allow_tf32 = True
    yield
    torch.backends.cuda.matmul.allow_tf32 = False


@pytest.mark.usefixtures("_tf32")
def test_tensor_cores_that_round_float32_are_refused() -> None:
    require_full_precision(torch.device("cuda"), torch.float64)
    require_full_precision(torch.device("cpu"), torch.float32)
    with pytest.raises(PrecisionError, match="TF32 is on"):
        require_full_precision(torch.device("cuda"), torch.float32)


def test_full_float32_is_welcome_on_a_gpu() -> None:
    require_full_precision(torch.device("cuda"), torch.float32)


def test_fast_path_refuses_tied_reads() -> None:
    with pytest.raises(PrecisionError, match="the fast path serves direct reads"):
        SubleqMachine(Sizes.of([subleq_program("add")]), read="paper").run([subleq_program("add")], fast=True)


def test_fleq_refuses_what_it_cannot_copy_exactly() -> None:
    with pytest.raises(PrecisionError, match="FLEQ computes with real numbers"):
        FleqMachine(FleqSizes(4, 4, 4), torch.float16)
    with pytest.raises(PrecisionError, match=r"lambda = 30 is below 40, ln\(n 2\^53\)"):
        FleqMachine(FleqSizes(4, 4, 4), scale=30.0)
    FleqMachine(FleqSizes(2, 64, 4), torch.float32)
    with pytest.raises(PrecisionError, match=r"65 cells: float32 at lambda 128 tells 64 apart(.|\n)*torch\.float64"):
        FleqMachine(FleqSizes(2, 65, 4), torch.float32)
