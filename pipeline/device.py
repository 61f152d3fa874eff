"""The device that computes, and the kind of it on which stored bytes are equal."""

from __future__ import annotations

import platform

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


def has_bfloat16(device: torch.device) -> bool:
    """Whether a device multiplies in bfloat16; a processor without such instructions takes several times as long."""
    if device.type != "cpu":
        return True
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def computed_in(device: torch.device, asked: torch.dtype) -> torch.dtype:
    """The dtype of products: float32 where bfloat16 is asked of a device that has none, as it is faster and exacter."""
    return torch.float32 if asked == torch.bfloat16 and not has_bfloat16(device) else asked


def device_kind(device: torch.device) -> str:
    """The kind of device: equal bytes are promised within one kind.

    For a processor its name and what its products are made of, since libraries choose their code by both.
    """
    if device.type == "cuda":
        return f"cuda {torch.cuda.get_device_name(device)}"
    known = getattr(torch.cpu, "get_capabilities", dict)()  # not in the oldest torch that will do
    units = [torch.backends.cpu.get_cpu_capability()]
    units += ["bf16"] * has_bfloat16(device) + ["AMX"] * torch.cpu._is_amx_tile_supported()
    return f"cpu {known.get('cpu_name', platform.machine())} ({', '.join(units)})"
