"""One shard, from tokens on disk to features on disk: all that a worker needs, wherever it runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Int32, Int64, Num
from torch import nn

from pipeline.allocator import keep_freed_memory, return_freed_memory
from pipeline.backbones.adapters import embedding_adapter, make_adapter
from pipeline.backbones.generic import GenericNetwork
from pipeline.backbones.settings import BackboneSettings
from pipeline.backbones.transformer import Transformer
from pipeline.device import computed_in
from pipeline.errors import PermafrostError
from pipeline.extraction.forward import Reader, layer_names
from pipeline.extraction.plan import batches, distinct_rows
from pipeline.extraction.settings import CacheSettings
from pipeline.extraction.sources import AnyBackbone, find_source, made_with
from pipeline.extraction.transfer import Arriving, one_behind, to_device
from pipeline.features.dtypes import ON_DISK, encode
from pipeline.features.layout import Layout
from pipeline.features.workspace import CODE
from pipeline.features.write import write_shard
from pipeline.identity import file_sha256
from pipeline.looped.backbone import LoopedBackbone, LoopedNetwork
from pipeline.tasks.tokens import Tokens, open_tokens
from pipeline.work import code_digest

LOADED_CODE = code_digest(CODE)
"""Taken when the code is loaded: a worker that lives on after the files have changed still runs the old."""


@dataclass(frozen=True)
class ShardJob:
    """What every shard of one extraction shares; small, since it travels to each worker with each shard.

    Weights never travel: each process loads its own once. `key` is that of the work: what a worker that lives long has
    loaded for another key, at the same paths, is not used. `alike` is what decides the bytes and must be the same
    wherever a shard is computed: versions, kind of device, kernels, and digests of tokens, weights and code.
    """

    tokens: Path
    backbone: BackboneSettings
    settings: CacheSettings
    store: Path
    layout: Layout
    device: str
    key: str
    alike: dict[str, Any] = field(hash=False)


class Inputs:
    """The distinct inputs of a task by row, read from disk when asked for."""

    def __init__(self, tokens: Tokens) -> None:
        """Find the distinct inputs: some 60 bytes of memory for each example, of which 20 stay."""
        self.tokens = tokens
        hashes = {name: np.asarray(split.content[:]) for name, split in tokens.splits.items()}
        self.first, self.rows = distinct_rows(hashes)
        self._starts = np.cumsum([0, *(len(part) for part in hashes.values())])
        lengths = np.concatenate([split.read_lengths() for split in tokens.splits.values()])
        self.lengths: Int32[np.ndarray, " row"] = lengths[self.first].astype(np.int32, copy=False)

    def read(self, rows: Int64[np.ndarray, " picked"]) -> Num[np.ndarray, "picked token *feature"]:
        """Some rows, as they are stored."""
        examples = self.first[rows]
        parts: list[np.ndarray] = []
        places: list[np.ndarray] = []
        for start, stop, split in zip(self._starts, self._starts[1:], self.tokens.splits.values(), strict=False):
            here = np.flatnonzero((examples >= start) & (examples < stop))
            if len(here):
                wanted = examples[here] - start
                low, high = int(wanted.min()), int(wanted.max()) + 1
                dense = high - low <= 4 * len(wanted)  # one slice with a few rows too many beats many small reads
                parts.append(
                    np.asarray(split.inputs[low:high])[wanted - low]
                    if dense
                    else np.asarray(split.inputs.oindex[wanted])
                )
                places.append(here)
        if not parts:
            return np.asarray(self.tokens.splits["train"].inputs[:0])
        order = np.argsort(np.concatenate(places), kind="stable")
        return np.concatenate(parts)[order]

    def prepare(self, stored: Num[np.ndarray, "row token *feature"]) -> Num[np.ndarray, "row token *feature"]:
        """Stored inputs as the input layer takes them: normalised patches in float32, or ids in int64."""
        return self.tokens.normalise(stored) if self.tokens.kind == "patches" else stored.astype(np.int64)


@dataclass(frozen=True)
class Written:
    """A shard on disk: its file's sha256, taken where it was written and not by the one driver.

    `float32_rows` were computed a second time, in float32, since they were not finite in the dtype of the products.
    """

    sha256: str
    float32_rows: int


def compute_shard(job: ShardJob, shard: int) -> Written:
    """Compute one shard and write it.

    Raises:
        ValueRangeError: a hidden state is not finite, in float32 neither, or does not fit the storage dtype.
        PermafrostError: the device has no memory for a batch, or this process would give other bytes than that which
            began the run.
    """
    torch.set_num_threads(job.settings.threads)
    inputs, reader = prepared(job)
    held = job.layout.rows_of(shard)
    rows = np.arange(held.start, held.stop)
    lengths = inputs.lengths[rows]
    stored = inputs.read(rows)
    layout = job.layout
    # Held as they will lie on disk: in float32 a shard would take twice the memory and more.
    values = np.zeros((len(rows), *layout.shape[1:]), ON_DISK[layout.dtype])

    def begin(picked: Int64[np.ndarray, " picked"]) -> tuple[Int64[np.ndarray, " picked"], Arriving]:
        try:
            return picked, begin_rows(reader, inputs, stored[picked], lengths[picked])
        except torch.OutOfMemoryError as error:
            raise _too_large(job, len(picked), int(lengths[picked].max())) from error

    float32_rows = 0
    # While a GPU computes a batch, the one before it is put into its place here and the next is prepared.
    for picked, arriving in one_behind(map(begin, batches(lengths, job.settings.batch_tokens))):
        states = arriving.numpy()
        for bad in np.flatnonzero(~np.isfinite(states).all(axis=(1, 2, 3))):
            one = picked[bad : bad + 1]
            retried = read_rows(exact_reader(job), inputs, stored[one], lengths[one])
            states[bad : bad + 1, : retried.shape[1]] = retried
            float32_rows += 1
        values[picked, : states.shape[1]] = encode(states, layout.dtype, layout.layers, rows[picked])
    write_shard(job.store, layout, shard, values)
    return Written(file_sha256(job.store / layout.file_of(shard)), float32_rows)


def _too_large(job: ShardJob, rows: int, tokens: int) -> PermafrostError:
    """Batches are never halved in silence: who shares a batch changes low bits, and so the stored bytes."""
    budget = job.settings.batch_tokens
    mend = f"cache.batch_tokens: {budget // 2} (it changes low bits, so every shard is computed anew)"
    if rows == 1:
        mend = "one input alone is too long: shorten the task's inputs, or use a device with more memory"
    return PermafrostError(
        f"{job.device} has no memory for a batch of {rows} × {tokens} tokens (cache.batch_tokens: {budget})", mend=mend
    )


def begin_rows(
    reader: Reader,
    inputs: Inputs,
    stored: Num[np.ndarray, "row token *feature"],
    lengths: Int32[np.ndarray, " row"],
) -> Arriving:
    """Begin the hidden states of some rows run together, cut to the longest of them."""
    longest = max(1, int(lengths.max()))
    batch = to_device(torch.from_numpy(inputs.prepare(stored[:, :longest])), reader.device)
    return Arriving(reader.read(batch, torch.from_numpy(lengths.astype(np.int64)), inputs.tokens.readout))


def read_rows(
    reader: Reader,
    inputs: Inputs,
    stored: Num[np.ndarray, "row token *feature"],
    lengths: Int32[np.ndarray, " row"],
) -> Float32[np.ndarray, "row kept layer width"]:
    """The hidden states that `begin_rows` begins."""
    return begin_rows(reader, inputs, stored, lengths).numpy()


@lru_cache(maxsize=1)
def find_inputs(tokens: Path, digest: str) -> Inputs:
    """The distinct inputs of the task at `tokens`, whose content is `digest`; found once a process."""
    del digest  # a part of the key: other content at the same place is another task
    inputs = Inputs(open_tokens(tokens))
    return_freed_memory()
    return inputs


@lru_cache(maxsize=1)
def prepared(job: ShardJob) -> tuple[Inputs, Reader]:
    """Inputs and network of one extraction, made once a process.

    Raises:
        PermafrostError: this process would give other bytes than that which began the run.
    """
    digest = open_tokens(job.tokens).digest
    inputs, backbone = find_inputs(job.tokens, digest), find_source(job.backbone)
    made, _ = made_with(backbone, job.settings, torch.device(job.device))
    _require_alike(job, {**made, "tokens": digest, "weights": backbone.weights, "code": LOADED_CODE})
    keep_freed_memory()
    return inputs, make_reader(inputs.tokens, backbone, job.settings, job.device, job.settings.compute_dtype)


def _require_alike(job: ShardJob, here: dict[str, Any]) -> None:
    """Refuse to mix, say, a worker with other weights at the same path, or one without Triton among others."""
    for name, wanted in job.alike.items():
        if here[name] != wanted:
            raise PermafrostError(
                f"a worker has the {name} {here[name]!r}, where the run began it is {wanted!r}",
                mend="make the workers' machines and environments alike, and start them anew after a change of code",
            )


@lru_cache(maxsize=1)
def exact_reader(job: ShardJob) -> Reader:
    """The same network in float32, for rows that overflow."""
    return make_reader(open_tokens(job.tokens), find_source(job.backbone), job.settings, job.device, "float32")


def make_reader(tokens: Tokens, backbone: AnyBackbone, settings: CacheSettings, device: str, dtype: str) -> Reader:
    """Input layer and network on the device; the products of the network in `dtype`, all else in float32."""
    return _reader(tokens, backbone, backbone.load_frozen(), settings, device, dtype)


def witness_reader(job: ShardJob) -> tuple[Reader, str]:
    """A float32 network to compare with, and whose code it is: transformers' own wherever that can be had."""
    tokens, backbone = open_tokens(job.tokens), find_source(job.backbone)
    network = backbone.load_witness()
    if network is None:
        return make_reader(tokens, backbone, job.settings, job.device, "float32"), "this program's float32"
    reader = _reader(tokens, backbone, network, job.settings, job.device, "float32")
    return reader, f"transformers {version('transformers')}"


def _reader(
    tokens: Tokens,
    backbone: AnyBackbone,
    network: Transformer | GenericNetwork | LoopedNetwork,
    settings: CacheSettings,
    device: str,
    dtype: str,
) -> Reader:
    size = tokens.features if tokens.kind == "patches" else tokens.vocabulary or 0
    if isinstance(backbone, LoopedBackbone):
        adapter = nn.Identity()  # its inputs are states already
    elif tokens.embedding == "backbone":
        adapter = embedding_adapter(backbone.load_embedding())
        if adapter.num_embeddings < size:
            raise PermafrostError(
                f"the tokenizer has {size} ids, the backbone's embedding table {adapter.num_embeddings} rows",
                mend="tokenize the task with this backbone's own tokenizer",
            )
    else:
        adapter = make_adapter(tokens.kind, size, backbone.spec.width, settings.adapter_gain, settings.adapter_seed)
    layers = layer_names(settings.layers, backbone.spec.layers)
    frozen = adapter.to(device).requires_grad_(False)
    products = getattr(torch, dtype)
    if not isinstance(backbone, LoopedBackbone):  # which is exact in what is asked for, or refuses
        products = computed_in(torch.device(device), products)
    return Reader(frozen, network.to(device), layers, settings.readout, products)
