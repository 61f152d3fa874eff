"""Llama, Mistral and Qwen2."""

from __future__ import annotations

from typing import Any

from pipeline.backbones.architectures.checkpoint import BOTH, WEIGHT, State, activation, copy, joined
from pipeline.backbones.places import Places, Rotary, Stretch
from pipeline.backbones.spec import Spec
from pipeline.errors import PermafrostError


def llama_spec(config: dict[str, Any]) -> Spec:
    """Llama, Mistral and Qwen2: root-mean-square norm first, causal, rotary positions, a gated feed-forward."""
    qwen = config["model_type"] == "qwen2"
    window = _window(config) if config.get("use_sliding_window", not qwen) else None
    if config.get("mlp_bias") or (config.get("attention_bias") and not qwen):
        raise PermafrostError("a Llama with biases in its projections is not supported")
    return Spec(
        width=config["hidden_size"],
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        inner_width=config["intermediate_size"],
        positions=config["max_position_embeddings"],
        norm_eps=config.get("rms_norm_eps", 1e-6),
        activation=activation(config.get("hidden_act", "silu")),
        prenorm=True,
        causal=True,
        token_types=False,
        embedding_dropout=0.0,
        attention_dropout=config.get("attention_dropout", 0.0),
        residual_dropout=0.0,
        places=_rotary(config),
        rms_norm=True,
        gated=True,
        qkv_bias=qwen,
        bias=False,
        window=None if window is None else window - 1,
        key_heads=config.get("num_key_value_heads"),
        head_width=config.get("head_dim"),
    )


def _window(config: dict[str, Any]) -> int | None:
    """How far a token sees; Qwen2 may begin with layers that see everything."""
    layers, qwen = config["num_hidden_layers"], config["model_type"] == "qwen2"
    whole = min(layers, config.get("max_window_layers", 28)) if qwen else 0
    kinds = config.get("layer_types") or ["full_attention"] * whole + ["sliding_attention"] * (layers - whole)
    if len(set(kinds)) > 1:
        raise PermafrostError(f"layers of which only some have a window are not supported: {', '.join(kinds)}")
    return config.get("sliding_window") if set(kinds) == {"sliding_attention"} else None


def _rotary(config: dict[str, Any]) -> Places:
    """The rotation's base, and how it is stretched; checkpoints of two generations write it differently."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    base = rope.get("rope_theta", config.get("rope_theta", 10000.0))
    if kind == "default":
        return Rotary(base)
    if kind != "llama3":
        raise PermafrostError(f"rotary positions of type {kind!r} are not supported; known: default, llama3")
    sizes = (rope["factor"], rope["low_freq_factor"], rope["high_freq_factor"])
    return Rotary(base, Stretch(*sizes, rope["original_max_position_embeddings"]))


def llama_tensors(state: State, spec: Spec) -> State:
    """Llama's, Mistral's and Qwen2's names are the same."""
    tensors = {"final_norm.weight": state["norm.weight"]}
    kinds = BOTH if spec.qkv_bias else WEIGHT
    for i in range(spec.layers):
        theirs, ours = f"layers.{i}", f"blocks.{i}"
        parts = ("q_proj", "k_proj", "v_proj")
        tensors |= joined(state, f"{ours}.attention.qkv", f"{theirs}.self_attn", parts, kinds)
        tensors |= copy(state, f"{ours}.attention.out", f"{theirs}.self_attn.o_proj", WEIGHT)
        tensors |= copy(state, f"{ours}.norm1", f"{theirs}.input_layernorm", WEIGHT)
        tensors |= copy(state, f"{ours}.norm2", f"{theirs}.post_attention_layernorm", WEIGHT)
        tensors |= joined(state, f"{ours}.up", f"{theirs}.mlp", ("gate_proj", "up_proj"), WEIGHT)
        tensors |= copy(state, f"{ours}.down", f"{theirs}.mlp.down_proj", WEIGHT)
    return tensors
