"""What the families share: names of activations, and tensors moved from one name to another."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pipeline.backbones.spec import Activation
from pipeline.errors import PermafrostError

State = dict[str, Tensor]
WEIGHT = ("weight",)
BOTH = ("weight", "bias")
ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
}


def activation(name: str) -> Activation:
    """An activation by the name that configs give it.

    Raises:
        PermafrostError: it is not known.
    """
    if name not in ACTIVATIONS:
        raise PermafrostError(f"activation {name!r} is not supported; known: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def require(config: dict[str, Any], **only: Any) -> None:
    """Refuse a config with another choice than the one that is built here; a choice that it leaves out is that one.

    Raises:
        PermafrostError: names the choice.
    """
    for name, value in only.items():
        if config.get(name, value) not in (value, None):
            raise PermafrostError(
                f"{config.get('model_type', 'a network')} with {name}: {config[name]} is not supported; only {value} is"
            )


def copy(state: State, ours: str, theirs: str, kinds: tuple[str, ...] = BOTH) -> State:
    """A layer's tensors under our name."""
    return {f"{ours}.{kind}": state[f"{theirs}.{kind}"] for kind in kinds}


def joined(state: State, ours: str, theirs: str, parts: tuple[str, ...], kinds: tuple[str, ...] = BOTH) -> State:
    """Matrices that we keep as one, on top of each other."""
    return {f"{ours}.{kind}": torch.cat([state[f"{theirs}.{part}.{kind}"] for part in parts]) for kind in kinds}
