"""What a clock alone does not say: energy, and how fast this machine multiplies matrices."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from pipeline.costs.record import CostRecord

RAPL = Path("/sys/class/powercap")


class EnergyMeter:
    """Joules since it was made, of processor packages by RAPL and of NVIDIA devices by NVML.

    Where neither can be read, as in most containers and without privileges, `joules` is None: "not measured". The
    counters are the machine's, so other processes count too.
    """

    def __init__(self, rapl: Path = RAPL) -> None:
        self._packages = [path for path in sorted(rapl.glob("intel-rapl:[0-9]*")) if path.name.count(":") == 1]
        self._start = self._read()

    @property
    def joules(self) -> float | None:
        """Energy so far, or None when it cannot be measured."""
        now = self._read()
        if not self._start or now.keys() != self._start.keys():
            return None
        return sum(self._since(name, value) for name, value in now.items())

    def _since(self, name: str, now: float) -> float:
        passed = now - self._start[name]
        if passed < 0:  # the counter wrapped round
            passed += float((Path(name) / "max_energy_range_uj").read_text()) / 1e6
        return passed

    def _read(self) -> dict[str, float]:
        found = {}
        for package in self._packages:
            try:
                found[str(package)] = float((package / "energy_uj").read_text()) / 1e6
            except (OSError, ValueError):
                return {}
        return found | nvml_joules()


def nvml_joules() -> dict[str, float]:
    """Joules that each NVIDIA device has used since its driver was loaded; empty without NVML."""
    try:
        import pynvml  # pyright: ignore[reportMissingImports]  # in no requirement of ours
    except ImportError:
        return {}
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return {f"gpu {i}": pynvml.nvmlDeviceGetTotalEnergyConsumption(one) / 1e3 for i, one in enumerate(handles)}
    except pynvml.NVMLError:
        return {}


def measured(cost: CostRecord, energy: EnergyMeter, tokens: int | None, here: bool = True) -> CostRecord:
    """The record with what counters say: energy, unless the work ran on other machines too, and a device's peak memory.

    Args:
        cost: what a stage gave.
        energy: a meter that was made before the work began.
        tokens: how many real tokens the backbone took; None where it took none.
        here: whether only this machine worked.
    """
    return replace(
        cost, tokens=tokens, joules=energy.joules if here else None, peak_device_bytes=peak_device_bytes(cost.device)
    )


def peak_device_bytes(device: str) -> int | None:
    """The most that torch held on a CUDA device in this process; None on a processor."""
    return sys.modules["torch"].cuda.max_memory_allocated() if device.startswith("cuda") else None


def matmul_flops_per_second(size: int = 1024, repeats: int = 5) -> float:
    """FLOPs a second of a square float32 product in numpy: what a processor's work is measured against."""
    a = np.ones((size, size), np.float32)
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        _ = a @ a[::-1]  # not `a @ a`: of one array with itself less is computed
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def utilisation(flops: int | float, seconds: float, flops_per_second: float) -> float:
    """Counted FLOPs over the time they took, as a share of the rate of a plain matrix product."""
    return flops / seconds / flops_per_second if seconds > 0 else 0.0
