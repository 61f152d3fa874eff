"""Which tokens a token may look at."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from pipeline.backbones.places import Geometry


def visible(
    tokens: int,
    queries: Int64[Tensor, "#batch query"] | None,
    mask: Bool[Tensor, "batch token"] | None,
    causal: bool,
    window: int | None,
    device: torch.device,
) -> Bool[Tensor, "#batch 1 #query token"] | None:
    """Which keys each query may see; None where all are seen, or where a plain causal kernel says the same.

    Args:
        tokens: the number of keys.
        queries: where the queries stand; None for all tokens.
        mask: which tokens are real. Padding is on the right, so that a causal network's real tokens never see it.
        causal: no token sees what comes after it.
        window: the furthest distance that is seen; None for any.
        device: of the result.
    """
    keys = None if mask is None else mask[:, None, None, :]
    if window is None and not causal:
        return keys
    if window is None and queries is None:
        return None
    place = torch.arange(tokens, device=device)
    at = (place[None] if queries is None else queries)[:, None, :, None]
    allowed = place <= at if causal else torch.ones_like(place <= at)
    if window is not None:
        allowed = allowed & ((at - place).abs() <= window)
    if keys is not None:
        allowed = allowed & keys
    # Padding out of reach of every real token sees itself: to see nothing would be 0 / 0.
    return allowed if window is None else allowed | (place == at)


def scores_mask(
    geometry: Geometry,
    queries: Int64[Tensor, "#batch query"] | None,
    allowed: Bool[Tensor, "#batch 1 #query token"] | None,
) -> Bool[Tensor, "#batch 1 #query token"] | Float[Tensor, "#batch head query token"] | None:
    """The mask as scaled-dot-product attention takes it: with a bias by distance it is what is added to the scores."""
    if geometry.bias is None:
        return allowed
    bias = geometry.bias[None] if queries is None else geometry.bias[:, queries].transpose(0, 1)
    return bias if allowed is None else bias.masked_fill(~allowed, -torch.inf)
