"""The device that computes, and the kind of it on which stored bytes are equal."""

from __future__ import annotations

import torch

from pipeline.errors import PermafrostError


def pick_device(name: str) -> torch.device:
    """`auto` is CUDA where there is one, else the CPU.

    Raises:
        PermafrostError: the device does not exist here.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise PermafrostError(f"device {name!r} is not here: torch sees no CUDA device", mend="--device cpu")
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise PermafrostError(f"unknown device {name!r}", mend="--device auto, cpu, cuda or cuda:N") from error


def device_kind(device: torch.device) -> str:
    """The kind of device: equal bytes are promised within one kind."""
    if device.type == "cuda":
        return f"cuda {torch.cuda.get_device_name(device)}"
    bf16 = "with" if torch.ops.mkldnn._is_mkldnn_bf16_supported() else "without"
    return f"cpu {torch.backends.cpu.get_cpu_capability()} {bf16} bf16"
