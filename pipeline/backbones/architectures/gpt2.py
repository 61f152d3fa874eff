"""GPT-2 and its sizes."""

from __future__ import annotations

from typing import Any

from pipeline.backbones.architectures.checkpoint import State, activation, copy, require
from pipeline.backbones.spec import Spec


def gpt2_spec(config: dict[str, Any]) -> Spec:
    """GPT-2: norm first, causal, tanh GELU. Defaults are those of GPT2Config."""
    require(config, scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    return Spec(
        width=config["n_embd"],
        layers=config["n_layer"],
        heads=config["n_head"],
        inner_width=config.get("n_inner") or 4 * config["n_embd"],
        positions=config["n_positions"],
        norm_eps=config.get("layer_norm_epsilon", 1e-5),
        activation=activation(config.get("activation_function", "gelu_new")),
        prenorm=True,
        causal=True,
        token_types=False,
        embedding_dropout=config.get("embd_pdrop", 0.1),
        attention_dropout=config.get("attn_pdrop", 0.1),
        residual_dropout=config.get("resid_pdrop", 0.1),
    )


def gpt2_tensors(state: State, spec: Spec) -> State:
    """GPT-2 keeps its weights transposed (`Conv1D`)."""
    tensors = {"position": state["wpe.weight"]}
    for i in range(spec.layers):
        for ours, theirs in (("norm1", "ln_1"), ("norm2", "ln_2")):
            tensors |= copy(state, f"blocks.{i}.{ours}", f"h.{i}.{theirs}")
        names = (("attention.qkv", "attn.c_attn"), ("attention.out", "attn.c_proj"), ("up", "mlp.c_fc"))
        for ours, theirs in (*names, ("down", "mlp.c_proj")):
            tensors[f"blocks.{i}.{ours}.weight"] = state[f"h.{i}.{theirs}.weight"].T
            tensors[f"blocks.{i}.{ours}.bias"] = state[f"h.{i}.{theirs}.bias"]
    return tensors | copy(state, "final_norm", "ln_f")
