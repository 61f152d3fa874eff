"""The section `cache` of params.yaml: everything about extraction that can change a stored number."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic.dataclasses import dataclass

from pipeline.extraction.readout import ReadoutName
from pipeline.features.dtypes import StorageDtype
from pipeline.params import STRICT, Seed

Positive = Annotated[int, Field(gt=0)]


def _several(names: Any) -> Any:
    """One name stands for a list of one."""
    return (names,) if isinstance(names, str) else tuple(names) if isinstance(names, list) else names


def _each_once(names: tuple[ReadoutName, ...]) -> tuple[ReadoutName, ...]:
    if not names:
        raise ValueError("at least one readout is needed")
    if len(set(names)) < len(names):
        raise ValueError("a readout is named twice")
    if "all" in names and len(names) > 1:
        raise ValueError("all keeps every token's vector, the others one an answer: keep it in a run of its own")
    return names


@dataclass(frozen=True, config=STRICT)
class CacheSettings:
    """How hidden states are computed and stored.

    The adapter is drawn from `adapter_seed` with orthogonal weights times `adapter_gain`. `layers` are block numbers
    (0: the embeddings), `final`, or `all`. `readout` is which positions are kept (see `readout.py`), or several such
    names. `batch_tokens` and `threads` are here because they change low bits. `tolerance` is the largest relative error
    against float32 that the sample may show.
    """

    adapter_seed: Seed
    adapter_gain: Annotated[float, Field(gt=0)]
    layers: Annotated[tuple[Annotated[int, Field(ge=0)] | Literal["final", "all"], ...], Field(min_length=1)]
    readout: Annotated[tuple[ReadoutName, ...], BeforeValidator(_several), AfterValidator(_each_once)]
    compute_dtype: Literal["bfloat16", "float32"]
    storage_dtype: StorageDtype
    batch_tokens: Positive
    threads: Positive
    shard_bytes: Positive
    chunk_bytes: Positive
    tolerance: Annotated[float, Field(gt=0)]
