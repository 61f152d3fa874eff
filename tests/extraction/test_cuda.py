"""The engine on a real GPU: graphs, waits, stored bytes, fidelity, and the rates that are promised. `pytest -m gpu`."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from pipeline.extraction import forward, frozen_attention, graphs
from pipeline.extraction.engine import Where, extract, plan_extraction
from pipeline.extraction.forward import Reader
from pipeline.extraction.graphs import AFTER, MOST, CudaRecorder, GraphCache
from pipeline.extraction.products import FUSED_CUDA, kernels_for, triton_fault
from pipeline.extraction.transfer import Arriving, to_device
from pipeline.features import open_features
from pipeline.identity import file_digests
from pipeline.tasks.tokens import open_tokens
from tests.architectures import CONFIGS
from tests.extraction.places import CUDA
from tests.imports import ROOT
from tests.tiny import backbone, cache_settings, random_transformer, write_bert, write_xor

pytestmark = [pytest.mark.gpu, CUDA]
GPU = torch.device("cuda")
FAMILIES = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


def reader_of(config, readouts=("task",), dtype=torch.bfloat16, device=GPU) -> Reader:
    network, adapter = random_transformer(config, std=0.1), nn.Linear(4, 32)
    nn.init.normal_(adapter.weight, generator=torch.Generator().manual_seed(0))
    nn.init.zeros_(adapter.bias)
    return Reader(adapter.to(device), network.to(device), ("0", "1", "2", "final"), readouts, dtype)


def graphs_of(reader: Reader) -> Any:
    """What it recorded for the tests' two answers."""
    cache: Any = reader._whole[2]
    return cache.graphs


def test_the_fused_kernels_run_here():
    assert triton_fault(GPU) is None
    assert kernels_for(GPU, torch.bfloat16) == FUSED_CUDA


@FAMILIES
def test_graphs_have_the_bits_of_the_pass_without_them(config, capsys):
    reader = reader_of(config)
    lengths = torch.full((5,), 9)
    for _ in range(AFTER + 3):
        x = torch.randn(5, 9, 4, device=GPU)
        found = reader.read(x, lengths, 2)
        with torch.inference_mode():
            assert torch.equal(found, reader._full(2, x))
    assert len(graphs_of(reader)) == 1, capsys.readouterr().out


def test_more_shapes_than_graphs_stay_right():
    reader = reader_of(CONFIGS["gpt2"])
    for turn in range(3 * (AFTER + 1)):
        for rows in range(1, MOST + 3):
            x = torch.randn(rows, 9, 4, device=GPU)
            found = reader.read(x, torch.full((rows,), 9), 2)
            if turn > AFTER:
                with torch.inference_mode():
                    assert torch.equal(found, reader._full(2, x))
    assert len(graphs_of(reader)) <= MOST


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature")
@FAMILIES
@pytest.mark.parametrize("readouts", [("task",), ("last", "mean", "max"), ("all",)])
def test_nothing_waits_for_the_device(config, readouts):
    reader = reader_of(config, readouts)
    x = torch.randn(3, 9, 4).pin_memory()
    for lengths in (torch.tensor([9, 9, 9]), torch.tensor([9, 4, 1])):
        reader.read(x.to(GPU), lengths, 2)  # kernels are compiled and weights prepared
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            arriving = Arriving(reader.read(to_device(x, GPU), lengths, 2))
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert np.isfinite(arriving.numpy()).all()


@FAMILIES
@pytest.mark.parametrize("lengths", [[9, 9, 9, 9], [9, 7, 4, 1]])
def test_half_precision_stays_within_the_tolerance_of_the_cpu_in_float32(config, lengths):
    x, counted = torch.randn(4, 9, 4), torch.tensor(lengths)
    wanted = reader_of(config, dtype=torch.float32, device=torch.device("cpu")).read(x, counted, 3)
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.bfloat16, 1.5e-2)):
        found = reader_of(config, dtype=dtype).read(x.to(GPU), counted, 3).cpu()
        for layer in range(4):
            assert (found[:, :, layer] - wanted[:, :, layer]).norm() / wanted[:, :, layer].norm() <= tolerance


def test_results_in_flight_are_not_overwritten_by_later_batches():
    reader, lengths = reader_of(CONFIGS["gpt2"]), torch.full((64,), 9)
    batches = [torch.randn(64, 9, 4) for _ in range(20)]
    in_flight = [Arriving(reader.read(to_device(x, GPU), lengths, 2)) for x in batches]
    for x, arriving in zip(batches, in_flight, strict=True):
        np.testing.assert_array_equal(arriving.numpy(), reader.read(x.to(GPU), lengths, 2).cpu().numpy())


@pytest.mark.parametrize(("causal", "masked"), [(True, False), (False, False), (False, True)])
def test_attention_takes_a_fused_kernel(causal, masked):
    """Strided views of one projection, as `FrozenAttention` cuts them; without a mask it must be the flash kernel."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = torch.randn(4, 64, 36, 64, device=GPU, dtype=torch.bfloat16).permute(2, 0, 1, 3).split(12)
    mask = torch.arange(64, device=GPU) < torch.tensor([64, 50, 3, 1], device=GPU)[:, None] if masked else None
    backend = SDPBackend.EFFICIENT_ATTENTION if masked else SDPBackend.FLASH_ATTENTION
    added = None if mask is None else mask[:, None, None]
    with sdpa_kernel(backend):
        only = frozen_attention._mix(q, k, v, added, causal)
    exact = frozen_attention._mix(q.float(), k.float(), v.float(), added, causal)
    assert (only.float() - exact).norm() / exact.norm() < 1e-2


@pytest.fixture
def run(tmp_path):
    """Extract a task of equal lengths on the GPU; gives the published store's path."""
    tokens = write_xor(tmp_path / "xor", bits=5)
    folder = write_bert(tmp_path / "bert", seed=0)

    def extraction(name, scheduler="inline", **changes):
        settings = cache_settings(compute_dtype="bfloat16", shard_bytes=49152, chunk_bytes=24576, **changes)
        plan = plan_extraction(open_tokens(tokens), backbone(folder), settings, {"task": "xor", "backbone": "tiny"})
        extract(plan, tmp_path / name, Where(GPU, tmp_path / "work", scheduler=scheduler))
        return tmp_path / name

    return extraction


def test_a_store_has_the_same_bytes_with_and_without_graphs_and_from_two_processes(run, monkeypatch):
    recorded: list[tuple[int, ...]] = []
    record = CudaRecorder.__call__

    def counted(self, forward, inputs):
        recorded.append(tuple(inputs.shape))
        return record(self, forward, inputs)

    monkeypatch.setattr(graphs.CudaRecorder, "__call__", counted)
    with_graphs = file_digests(run("with"))
    assert recorded
    assert file_digests(run("local", scheduler="local:2")) == with_graphs
    monkeypatch.setattr(forward, "GraphCache", lambda forward, _: GraphCache(forward, _, after=10**9))
    from pipeline.extraction import shard

    shard.prepared.cache_clear()
    shard.exact_reader.cache_clear()
    before = len(recorded)
    assert file_digests(run("without")) == with_graphs
    assert len(recorded) == before


def test_the_manifest_says_what_ran_and_how_far_it_is_from_float32(run):
    manifest = open_features(run("store")).manifest
    assert manifest["kernels"] == FUSED_CUDA
    assert manifest["device"].startswith("cuda ")
    assert manifest["fidelity"]["relative_error"]["final"] < 0.03


@pytest.mark.slow
@pytest.mark.parametrize("benchmark", ["throughput", "training"])
def test_the_promised_rates_hold_here(benchmark):
    only = ["--only", "patches"] if benchmark == "throughput" else []
    command = [sys.executable, "-m", f"tests.benchmarks.{benchmark}", "--device", "cuda", *only]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
