"""How each family's config and tensor names map to `Transformer`. A new family is one function here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pipeline.backbones.transformer import Activation, Spec
from pipeline.errors import PermafrostError

ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}


def _activation(name: str) -> Activation:
    if name not in ACTIVATIONS:
        raise PermafrostError(f"activation {name!r} is not supported; known: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def gpt2_spec(config: dict[str, Any]) -> Spec:
    """GPT-2: norm first, causal, tanh GELU. Defaults are those of GPT2Config."""
    return Spec(
        width=config["n_embd"],
        layers=config["n_layer"],
        heads=config["n_head"],
        inner_width=config.get("n_inner") or 4 * config["n_embd"],
        positions=config["n_positions"],
        norm_eps=config.get("layer_norm_epsilon", 1e-5),
        activation=_activation(config.get("activation_function", "gelu_new")),
        prenorm=True,
        causal=True,
        token_types=False,
        embedding_dropout=config.get("embd_pdrop", 0.1),
        attention_dropout=config.get("attn_pdrop", 0.1),
        residual_dropout=config.get("resid_pdrop", 0.1),
    )


def gpt2_tensors(state: dict[str, Tensor], spec: Spec) -> dict[str, Tensor]:
    """GPT-2 keeps its weights transposed (`Conv1D`)."""
    tensors = {"position": state["wpe.weight"]}
    for i in range(spec.layers):
        for ours, theirs in (("norm1", "ln_1"), ("norm2", "ln_2")):
            tensors |= _copy(state, f"blocks.{i}.{ours}", f"h.{i}.{theirs}")
        names = (("attention.qkv", "attn.c_attn"), ("attention.out", "attn.c_proj"), ("up", "mlp.c_fc"))
        for ours, theirs in (*names, ("down", "mlp.c_proj")):
            tensors[f"blocks.{i}.{ours}.weight"] = state[f"h.{i}.{theirs}.weight"].T
            tensors[f"blocks.{i}.{ours}.bias"] = state[f"h.{i}.{theirs}.bias"]
    return tensors | _copy(state, "final_norm", "ln_f")


def bert_spec(config: dict[str, Any]) -> Spec:
    """BERT: norm last, both directions, exact GELU. Defaults are those of BertConfig."""
    return Spec(
        width=config["hidden_size"],
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        inner_width=config["intermediate_size"],
        positions=config["max_position_embeddings"],
        norm_eps=config.get("layer_norm_eps", 1e-12),
        activation=_activation(config.get("hidden_act", "gelu")),
        prenorm=False,
        causal=False,
        token_types=True,
        embedding_dropout=config.get("hidden_dropout_prob", 0.1),
        attention_dropout=config.get("attention_probs_dropout_prob", 0.1),
        residual_dropout=config.get("hidden_dropout_prob", 0.1),
    )


def bert_tensors(state: dict[str, Tensor], spec: Spec) -> dict[str, Tensor]:
    """BERT keeps queries, keys and values apart; every input here is of token type 0."""
    tensors = {
        "position": state["embeddings.position_embeddings.weight"],
        "token_type": state["embeddings.token_type_embeddings.weight"][0],
    }
    tensors |= _copy(state, "embedding_norm", "embeddings.LayerNorm")
    for i in range(spec.layers):
        theirs = f"encoder.layer.{i}"
        for kind in ("weight", "bias"):
            parts = [state[f"{theirs}.attention.self.{part}.{kind}"] for part in ("query", "key", "value")]
            tensors[f"blocks.{i}.attention.qkv.{kind}"] = torch.cat(parts)
        tensors |= _copy(state, f"blocks.{i}.attention.out", f"{theirs}.attention.output.dense")
        tensors |= _copy(state, f"blocks.{i}.norm1", f"{theirs}.attention.output.LayerNorm")
        tensors |= _copy(state, f"blocks.{i}.up", f"{theirs}.intermediate.dense")
        tensors |= _copy(state, f"blocks.{i}.down", f"{theirs}.output.dense")
        tensors |= _copy(state, f"blocks.{i}.norm2", f"{theirs}.output.LayerNorm")
    return tensors


def _copy(state: dict[str, Tensor], ours: str, theirs: str) -> dict[str, Tensor]:
    return {f"{ours}.{kind}": state[f"{theirs}.{kind}"] for kind in ("weight", "bias")}


SPECS: dict[str, Callable[[dict[str, Any]], Spec]] = {"gpt2": gpt2_spec, "bert": bert_spec}
TENSORS: dict[str, Callable[[dict[str, Tensor], Spec], dict[str, Tensor]]] = {
    "gpt2": gpt2_tensors,
    "bert": bert_tensors,
}
EMBEDDINGS = {"gpt2": "wte.weight", "bert": "embeddings.word_embeddings.weight"}
PREFIXES = {"gpt2": "transformer.", "bert": "bert."}
"""What a checkpoint with a task's head puts in front of the backbone's tensor names."""


def spec_of(config: dict[str, Any]) -> Spec:
    """The architecture that a config.json describes.

    Raises:
        PermafrostError: its `model_type` is not one of the families.
    """
    family = config.get("model_type")
    if family not in SPECS:
        raise PermafrostError(f"model_type {family!r} is not supported; known: {', '.join(SPECS)}")
    return SPECS[family](config)


def tensors_of(config: dict[str, Any], state: dict[str, Tensor], spec: Spec) -> dict[str, Tensor]:
    """A checkpoint's tensors under the names of `Transformer`.

    Raises:
        PermafrostError: the checkpoint lacks a tensor that the architecture needs.
    """
    family = config["model_type"]
    plain = {name.removeprefix(PREFIXES[family]): tensor for name, tensor in state.items()}
    try:
        return TENSORS[family](plain, spec)
    except KeyError as error:
        raise PermafrostError(f"the checkpoint has no tensor {error}: it is not a whole {family}") from error


def embedding_of(config: dict[str, Any], state: dict[str, Tensor]) -> Tensor:
    """A checkpoint's table of word embeddings, `(id, width)`.

    Raises:
        PermafrostError: it has none.
    """
    family = config["model_type"]
    plain = {name.removeprefix(PREFIXES[family]): tensor for name, tensor in state.items()}
    if EMBEDDINGS[family] not in plain:
        raise PermafrostError(
            f"the checkpoint has no tensor {EMBEDDINGS[family]!r}: it cannot read ids of its tokenizer"
        )
    return plain[EMBEDDINGS[family]]
