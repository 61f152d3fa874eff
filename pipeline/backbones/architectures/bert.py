"""BERT, RoBERTa and Longformer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pipeline.backbones.architectures.checkpoint import State, activation, copy, joined, require
from pipeline.backbones.spec import Spec
from pipeline.errors import PermafrostError


def bert_spec(config: dict[str, Any]) -> Spec:
    """BERT: norm last, both directions, exact GELU. Defaults are those of BertConfig."""
    require(config, is_decoder=False, add_cross_attention=False, position_embedding_type="absolute")
    return Spec(
        width=config["hidden_size"],
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        inner_width=config["intermediate_size"],
        positions=config["max_position_embeddings"],
        norm_eps=config.get("layer_norm_eps", 1e-12),
        activation=activation(config.get("hidden_act", "gelu")),
        prenorm=False,
        causal=False,
        token_types=True,
        embedding_dropout=config.get("hidden_dropout_prob", 0.1),
        attention_dropout=config.get("attention_probs_dropout_prob", 0.1),
        residual_dropout=config.get("hidden_dropout_prob", 0.1),
    )


def bert_tensors(state: State, spec: Spec) -> State:
    """BERT keeps queries, keys and values apart; every input here is of token type 0."""
    positions = state["embeddings.position_embeddings.weight"]
    tensors = {
        "position": positions[len(positions) - spec.positions :],
        "token_type": state["embeddings.token_type_embeddings.weight"][0],
    }
    tensors |= copy(state, "embedding_norm", "embeddings.LayerNorm")
    for i in range(spec.layers):
        theirs = f"encoder.layer.{i}"
        tensors |= joined(state, f"blocks.{i}.attention.qkv", f"{theirs}.attention.self", ("query", "key", "value"))
        tensors |= copy(state, f"blocks.{i}.attention.out", f"{theirs}.attention.output.dense")
        tensors |= copy(state, f"blocks.{i}.norm1", f"{theirs}.attention.output.LayerNorm")
        tensors |= copy(state, f"blocks.{i}.up", f"{theirs}.intermediate.dense")
        tensors |= copy(state, f"blocks.{i}.down", f"{theirs}.output.dense")
        tensors |= copy(state, f"blocks.{i}.norm2", f"{theirs}.output.LayerNorm")
    return tensors


def roberta_spec(config: dict[str, Any]) -> Spec:
    """BERT whose table of positions begins behind the id of padding."""
    return replace(bert_spec(config), positions=config["max_position_embeddings"] - config.get("pad_token_id", 1) - 1)


def longformer_spec(config: dict[str, Any]) -> Spec:
    """RoBERTa that sees half a window to each side (arXiv 2004.05150); no token is global.

    Deviation: the window is a mask over all pairs, so that time grows with the square of the length.
    """
    windows = config.get("attention_window", 512)
    if isinstance(windows, list):
        if len(set(windows)) > 1:
            raise PermafrostError(f"attention windows that differ by layer are not supported: {windows}")
        windows = windows[0]
    return replace(roberta_spec(config), window=windows // 2)
