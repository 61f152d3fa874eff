"""Tiny backbones, tasks and projects for the tests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from pipeline.backbones.init import draw_weights
from pipeline.backbones.load import Backbone, find_backbone
from pipeline.backbones.settings import PathSource
from pipeline.backbones.transformer import Transformer
from pipeline.extraction.settings import CacheSettings
from pipeline.tasks.bit_xor import BitXor
from pipeline.tasks.task import Split, TaskData
from pipeline.tasks.writing import write_tokens
from tests.imports import ROOT

BERT = {
    "model_type": "bert",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 24,
    "hidden_act": "gelu",
    "type_vocab_size": 2,
    "vocab_size": 11,
    "layer_norm_eps": 1e-12,
}
GPT2 = {
    "model_type": "gpt2",
    "n_embd": 32,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 24,
    "vocab_size": 11,
    "activation_function": "gelu_new",
}

PARAMS = """
grid:
  tasks: [xor]
  backbones: [tiny, tiny-random]
  pretrain: []
tasks:
  xor: {kind: bit_xor, seed: 0, bits: 3, split: unseen, validation: 0.2, test: 0.2}
backbones:
  tiny: &tiny {source: path, path: tiny-bert}
  tiny-random: {source: random, like: *tiny, seed: 0, std: 0.02, scale_residual: false}
cache:
  adapter_seed: 0
  adapter_gain: 1.41
  layers: [final]
  readout: task
  compute_dtype: bfloat16
  storage_dtype: bfloat16
  batch_tokens: 48
  threads: 1
  shard_bytes: 1536
  chunk_bytes: 768
  tolerance: 0.05
probe:
  methods: [logistic, ridge, knn, sgd]
  penalties: [0.1, 0.01]
  iterations: 50
  class_weights: null
  neighbours: 5
  sgd_epochs: 2
  sgd_batch: 8
  lasso_penalty: 0.01
  lasso_iterations: 20
  lasso_shares: [0.1]
  fractions: [0.1, 1.0]
  seed: 0
  threads: 1
finetune:
  trainable: [output, layernorm, input, positions]
  seed: 0
  steps: 6
  batch_size: 8
  evaluate_every: 3
  examples: stored
  stop_at: null
  patience: null
  lr_sweep: null
  compute_dtype: bfloat16
  threads: 1
  variant: code
  position_rows: used
  final_norm: null
  frozen_dropout: true
  lr: 0.001
  clip: null
  input_dropout: null
  adapter_gain: null
pretrain:
  seed: 0
  steps: 40
  batch_size: 8
  evaluate_every: 20
  lr: 0.003
  compute_dtype: bfloat16
  threads: 1
"""


def cache_settings(**changes: Any) -> CacheSettings:
    """Settings that cut the tiny task into several shards, chunks and batches."""
    settings: dict[str, Any] = {
        "adapter_seed": 0,
        "adapter_gain": 1.41,
        "layers": ("final",),
        "readout": "task",
        "compute_dtype": "float32",
        "storage_dtype": "float32",
        "batch_tokens": 48,
        "threads": 1,
        "shard_bytes": 3072,
        "chunk_bytes": 1536,
        "tolerance": 0.05,
    }
    return CacheSettings(**(settings | changes))


def write_bert(folder: Path, seed: int, **changes: Any) -> Path:
    """Write a random BERT under the names and in the files that transformers uses; `changes` are of its config."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(seed)
    config = BERT | changes
    model = BertModel(BertConfig(**{k: v for k, v in config.items() if k != "model_type"}), add_pooling_layer=False)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.3)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, folder / "model.safetensors")
    return folder


def write_tokenizer(folder: Path, words: tuple[str, ...]) -> Path:
    """Write the tokenizer of a backbone whose table has an id for each of `words`, behind BERT's special tokens."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
    vocabulary = {word: number for number, word in enumerate((*special, *words))}
    tokenizer: Any = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"pad_token": "[PAD]"}))
    return folder


def backbone(folder: Path) -> Backbone:
    """The backbone in `folder`, found and not yet loaded."""
    return find_backbone(PathSource(source="path", path=str(folder)))


def random_transformer(config: dict[str, Any], std: float = 0.3) -> Transformer:
    """A network of the architecture in `config` with large weights, so that every part of it shows in the output."""
    from pipeline.backbones.families import spec_of

    model = Transformer(spec_of(config))
    draw_weights(model, seed=1, std=std, scale_residual=False)
    return model.eval().requires_grad_(False)


def write_xor(path: Path, bits: int) -> Path:
    """Write the tokens of a bit XOR."""
    task = BitXor(kind="bit_xor", seed=0, bits=bits, split="unseen", validation=0.2, test=0.2)
    write_tokens(path, path.name, {"bits": bits}, task.load(), {"majority class": 0.5})
    return path


def write_task(path: Path, train: Split, **more: Any) -> Path:
    """Write a task of patches, two classes, one answer, whose validation and test are empty."""
    shape, answers = train.read(0, 0).inputs.shape[1:], train.read(0, 0).labels.shape[1]
    dtype = train.read(0, 0).inputs.dtype
    lengths = None if train.read(0, 0).lengths is None else np.zeros(0, np.int32)
    empty = Split.of(np.zeros((0, *shape), dtype), np.zeros((0, answers), np.uint8), lengths)
    options: dict[str, Any] = {"kind": "patches", "classes": 2, "readout": 1, "source": {"name": "made"}, **more}
    task = TaskData(splits={"train": train, "validation": empty, "test": empty}, **options)
    write_tokens(path, path.name, {}, task, {})
    return path


def write_project(folder: Path, params: str = PARAMS) -> Path:
    """A copy of this project with a tiny grid, fit for `dvc` and for `python -m stages...`."""
    for name in ("pipeline", "stages"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / ".dvc").mkdir(parents=True)
    for name in ("dvc.yaml", ".dvcignore", ".gitignore", ".dvc/config", ".dvc/.gitignore"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "params.yaml").write_text(params)
    write_bert(folder / "tiny-bert", seed=0)
    return folder


def environment(**more: str) -> dict[str, str]:
    """The environment for a command in a project: this Python first on the path, nothing of the user's settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PERMAFROST_", "DVC_", "ZARR_"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return kept | {"PATH": path, "DVC_NO_ANALYTICS": "1", "OMP_WAIT_POLICY": "PASSIVE", **more}


def run(folder: Path, *command: str, check: bool = True, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a project; with `check`, show its output when it fails."""
    done = subprocess.run(command, cwd=folder, env=environment(**more), capture_output=True, text=True, timeout=300)
    if check and done.returncode:
        raise AssertionError(f"{' '.join(command)} exited with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done
