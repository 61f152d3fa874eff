"""Which parameters train: groups by name, with a range of layers where a group has one part in each block."""

from __future__ import annotations

import re

from torch import nn

from pipeline.errors import PermafrostError

LAYERED = ("layernorm", "feedforward", "attention", "recurrent", "bias", "lora(r)")
GROUPS = ("output", "input", "positions", *LAYERED, "all")
_LAYERED = "|".join(LAYERED).replace("(r)", r"\([1-9]\d*\)")
PATTERN = rf"^(?:output|input|positions|all|(?:{_LAYERED})(?:\[(?:-?\d+|-?\d*:-?\d*)\])?)$"
"""A group, or a group with a layer or a range of layers counted as Python does: `attention[-1]`, `layernorm[8:]`."""
BIAS = re.compile(r"\.bias(\w*)$")
"""The end of a bias's name; an LSTM's is `.bias_ih_l0`, its matrix `.weight_ih_l0`."""


def group_of(name: str) -> str:
    """The group of a parameter by its name; "embedding" for the rest, which only `all` trains."""
    if name.startswith(("adapter.", "head.")):
        return "input" if name.startswith("adapter.") else "output"
    if name in ("backbone.position", "backbone.relative.weight"):
        return "positions"
    parts = {
        ".lora_": "lora",
        "norm": "layernorm",
        ".attention.": "attention",
        ".lstm.": "recurrent",
        ".up.": "feedforward",
        ".down.": "feedforward",
    }
    return next((group for part, group in parts.items() if part in name), "embedding")


def choose(names: list[str], trainable: tuple[str, ...], layers: int, final_norm: bool) -> set[str]:
    """The names of what trains; `final_norm` false leaves out the norm behind the last block, whatever is chosen.

    Raises:
        PermafrostError: an entry names no group, or layers that the backbone does not have.
    """
    chosen: set[str] = set()
    for entry in trainable:
        if not re.match(PATTERN, entry):
            raise PermafrostError(f"finetune.trainable: {entry!r} is not a group; known: {', '.join(GROUPS)}")
        group = re.split(r"[\[(]", entry)[0]
        wanted = layers_of(entry, layers) if "[" in entry else None
        chosen |= {name for name in names if _in_group(name, group) and (wanted is None or _layer(name) in wanted)}
    return chosen if final_norm else {name for name in chosen if not name.startswith("backbone.final_norm.")}


def unmatched(names: list[str], trainable: tuple[str, ...]) -> list[str]:
    """The entries that name nothing among the parameters, as `recurrent` in a network that is no LSTM."""
    groups = {entry: re.split(r"[\[(]", entry)[0] for entry in trainable}
    return [entry for entry, group in groups.items() if not any(_in_group(name, group) for name in names)]


def _in_group(name: str, group: str) -> bool:
    if group == "bias":
        return name.startswith("backbone.") and BIAS.search(name) is not None
    return group in ("all", group_of(name))


def _layer(name: str) -> int | None:
    found = re.search(r"\.blocks\.(\d+)\.", name)
    return int(found[1]) if found else None


def layers_of(entry: str, layers: int) -> set[int]:
    """The layers that an entry of `trainable` names: all of them without a range.

    Raises:
        PermafrostError: the backbone has none of them.
    """
    place = entry.rstrip("]").partition("[")[2]
    if ":" in place:
        start, stop = (int(part) if part else None for part in place.split(":"))
        found = set(range(layers)[start:stop])
    elif place:
        found = {int(place) % layers} if -layers <= int(place) < layers else set()
    else:
        return set(range(layers))
    if not found:
        raise PermafrostError(f"finetune.trainable: {entry!r} names no layer of the backbone's {layers}")
    return found


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that train, by name."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def count_by_group(model: nn.Module) -> dict[str, int]:
    """How many numbers train in each group; a bias whose matrix is frozen counts as "bias"."""
    counts: dict[str, int] = {}
    names = trained(model)
    for name, parameter in names.items():
        alone = BIAS.search(name) is not None and BIAS.sub(r".weight\1", name) not in names
        group = "bias" if alone else group_of(name)
        counts[group] = counts.get(group, 0) + parameter.numel()
    return counts
