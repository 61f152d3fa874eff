"""The section `probe` of params.yaml."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from pipeline.params import STRICT, Seed, distinct

Method = Literal["logistic", "ridge", "knn", "sgd", "head2toe"]
Positive = Annotated[int, Field(gt=0)]
Share = Annotated[float, Field(gt=0, le=1)]
AboveZero = Annotated[float, Field(gt=0, allow_inf_nan=False)]
ClassWeights = Literal["balanced"] | dict[Annotated[int, Field(ge=0)], AboveZero] | None


def _one_layer_first(methods: tuple[Method, ...]) -> tuple[Method, ...]:
    if methods[0] == "head2toe":
        raise ValueError("head2toe takes features from all layers, but the first method chooses the layer")
    return methods


@dataclass(frozen=True, config=STRICT)
class ProbeSettings:
    """What is fitted to the cached features.

    `methods` run on every cached layer, but for head2toe, which chooses from all of them; the first is the one that is
    compared, where answers are numbers the first that can give numbers: ridge or knn. `penalties` are values of λ in
    the loss + λ/2 ‖W‖², for logistic regression (`iterations` at most for each) and ridge. `class_weights` say what an
    answer counts in these by its class: `balanced`, or numbers by class. `fractions` of train make the learning curve
    of the first method, drawn with `seed`; `neighbours` vote in kNN; `sgd_epochs` with batches of `sgd_batch` rows are
    the paper's probe. `lasso_penalty` and `lasso_iterations` find each feature's relevance for head2toe, `lasso_shares`
    of the features are tried.
    """

    methods: Annotated[
        tuple[Method, ...], Field(min_length=1), AfterValidator(distinct), AfterValidator(_one_layer_first)
    ]
    penalties: Annotated[tuple[AboveZero, ...], Field(min_length=1), AfterValidator(distinct)]
    iterations: Positive
    class_weights: ClassWeights
    neighbours: Positive
    sgd_epochs: Positive
    sgd_batch: Positive
    lasso_penalty: AboveZero
    lasso_iterations: Positive
    lasso_shares: Annotated[tuple[Share, ...], Field(min_length=1), AfterValidator(distinct)]
    fractions: Annotated[tuple[Share, ...], AfterValidator(distinct)]
    seed: Seed
    threads: Positive
