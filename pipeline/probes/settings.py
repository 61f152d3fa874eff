"""The section `probe` of params.yaml."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from pipeline.params import STRICT

Method = Literal["logistic", "ridge", "knn", "sgd"]
Positive = Annotated[int, Field(gt=0)]


@dataclass(frozen=True, config=STRICT)
class ProbeSettings:
    """What is fitted to the cached features.

    `methods` run on every cached layer; the first is the one that is compared. `penalties` are values of λ in the
    loss + λ/2 ‖W‖², for logistic regression (`iterations` at most for each) and ridge. `fractions` of train make the
    learning curve of the first method, drawn with `seed`; `neighbours` vote in kNN; `sgd_epochs` with batches of
    `sgd_batch` rows are the paper's probe.
    """

    methods: Annotated[tuple[Method, ...], Field(min_length=1)]
    penalties: Annotated[tuple[Annotated[float, Field(gt=0)], ...], Field(min_length=1)]
    iterations: Positive
    neighbours: Positive
    sgd_epochs: Positive
    sgd_batch: Positive
    fractions: tuple[Annotated[float, Field(gt=0, le=1)], ...]
    seed: Annotated[int, Field(ge=0)]
    threads: Positive
