"""ViT's encoder."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from pipeline.backbones.architectures.bert import bert_spec
from pipeline.backbones.architectures.checkpoint import BOTH, WEIGHT, State, copy, joined
from pipeline.backbones.places import Table
from pipeline.backbones.spec import Spec

POSITIONS = 1024


def vit_spec(config: dict[str, Any]) -> Spec:
    """ViT's encoder: norm first, both directions, exact GELU.

    As in the official FPT code it reads vectors of any task: its own patches and class token are left out, and its
    positions are 1024 zeros, which the fine-tune trains. Deviation: its dropouts are those of its config, mostly 0;
    `run.py` gives the 0.1 of its input layer to a ViT as well.
    """
    return replace(
        bert_spec(config | {"max_position_embeddings": POSITIONS}),
        prenorm=True,
        token_types=False,
        qkv_bias=config.get("qkv_bias", True),
        embedding_dropout=config.get("hidden_dropout_prob", 0.0),
        attention_dropout=config.get("attention_probs_dropout_prob", 0.0),
        residual_dropout=config.get("hidden_dropout_prob", 0.0),
        places=Table(zeros=True),
    )


def vit_tensors(state: State, spec: Spec) -> State:
    """ViT's names are BERT's with one level more."""
    tensors = {"position": torch.zeros(spec.positions, spec.width)}
    kinds = BOTH if spec.qkv_bias else WEIGHT
    for i in range(spec.layers):
        theirs, parts = f"encoder.layer.{i}", ("query", "key", "value")
        tensors |= joined(state, f"blocks.{i}.attention.qkv", f"{theirs}.attention.attention", parts, kinds)
        tensors |= copy(state, f"blocks.{i}.attention.out", f"{theirs}.attention.output.dense")
        tensors |= copy(state, f"blocks.{i}.norm1", f"{theirs}.layernorm_before")
        tensors |= copy(state, f"blocks.{i}.norm2", f"{theirs}.layernorm_after")
        tensors |= copy(state, f"blocks.{i}.up", f"{theirs}.intermediate.dense")
        tensors |= copy(state, f"blocks.{i}.down", f"{theirs}.output.dense")
    return tensors | copy(state, "final_norm", "layernorm")
