"""Where a paper and its code differ, each difference is one named param; a variant sets them all together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def choices(settings: Any, variants: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The value of each named difference, and of `variant` itself.

    Args:
        settings: a task's settings, with `variant` and an attribute for each difference, None where it is not set.
        variants: for each variant, the values of the differences.
    """
    chosen = dict(variants[settings.variant])
    own = {name: getattr(settings, name) for name in chosen}
    return {"variant": settings.variant, **chosen, **{name: value for name, value in own.items() if value is not None}}
