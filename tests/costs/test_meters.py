from __future__ import annotations

import sys
import time
import types
from dataclasses import replace

import numpy as np
import pytest

from pipeline.costs.meters import EnergyMeter, matmul_flops_per_second, measured, nvml_joules, utilisation
from pipeline.costs.record import CostRecord


@pytest.fixture
def rapl(tmp_path):
    """Two packages, and a core of the first, which must not be counted twice."""
    for name, energy in (("intel-rapl:0", 5_000_000), ("intel-rapl:1", 9_000_000), ("intel-rapl:0:0", 1_000_000)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "energy_uj").write_text(f"{energy}\n")
        (tmp_path / name / "max_energy_range_uj").write_text("10000000\n")
    return tmp_path


def test_energy_is_what_the_packages_counted_also_when_a_counter_wraps(rapl):
    meter = EnergyMeter(rapl)
    (rapl / "intel-rapl:0/energy_uj").write_text("6500000")
    (rapl / "intel-rapl:1/energy_uj").write_text("1000000")
    (rapl / "intel-rapl:0:0/energy_uj").write_text("9000000")
    assert meter.joules == pytest.approx(1.5 + 2.0)


def test_energy_that_cannot_be_read_is_not_measured(rapl, tmp_path):
    assert EnergyMeter(tmp_path / "nowhere").joules is None
    meter = EnergyMeter(rapl)
    (rapl / "intel-rapl:1/energy_uj").unlink()
    assert meter.joules is None


def test_a_devices_energy_is_read_where_nvml_is(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvml_joules() == {}
    stand_in = types.SimpleNamespace(
        NVMLError=RuntimeError,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda i: i,
        nvmlDeviceGetTotalEnergyConsumption=lambda i: 1500 * (i + 1),
    )
    monkeypatch.setitem(sys.modules, "pynvml", stand_in)
    assert nvml_joules() == {"gpu 0": 1.5, "gpu 1": 3.0}


def test_a_record_takes_energy_only_when_all_work_was_done_here(rapl):
    cost, energy = CostRecord("cache", "k", 1.0, 2, 3, "cpu", 4), EnergyMeter(rapl)
    (rapl / "intel-rapl:0/energy_uj").write_text("6500000")
    assert measured(cost, energy, 7) == replace(cost, tokens=7, joules=1.5)
    assert measured(cost, energy, 7, here=False).joules is None


def test_utilisation_of_a_product_is_about_one():
    rate = matmul_flops_per_second(512)
    a, b = np.ones((512, 512), np.float32), np.ones((512, 512), np.float32)
    seconds = []
    for _ in range(10):
        start = time.perf_counter()
        _ = a @ b
        seconds.append(time.perf_counter() - start)
    assert 0.3 < utilisation(2.0 * 512**3, min(seconds), rate) < 3
    assert utilisation(1.0, 0.0, rate) == 0.0
