"""T5's encoder."""

from __future__ import annotations

from typing import Any

from pipeline.backbones.architectures.checkpoint import WEIGHT, State, activation, copy, joined
from pipeline.backbones.places import Relative
from pipeline.backbones.spec import UNBOUNDED, Spec


def t5_spec(config: dict[str, Any]) -> Spec:
    """T5's encoder: root-mean-square norm first, no biases, scores not scaled, a bias by distance for positions."""
    act = config.get("feed_forward_proj", "relu")
    dropout = config.get("dropout_rate", 0.1)
    return Spec(
        width=config["d_model"],
        layers=config["num_layers"],
        heads=config["num_heads"],
        inner_width=config["d_ff"],
        positions=UNBOUNDED,
        norm_eps=config.get("layer_norm_epsilon", 1e-6),
        activation=activation("gelu_new" if act == "gated-gelu" else act.removeprefix("gated-")),
        prenorm=True,
        causal=False,
        token_types=False,
        embedding_dropout=dropout,
        attention_dropout=dropout,
        residual_dropout=dropout,
        places=Relative(
            config.get("relative_attention_num_buckets", 32), config.get("relative_attention_max_distance", 128)
        ),
        rms_norm=True,
        gated=act.startswith("gated-"),
        qkv_bias=False,
        bias=False,
        scaled=False,
        head_width=config["d_kv"],
        inner_dropout=dropout,
        final_dropout=dropout,
    )


def t5_tensors(state: State, spec: Spec) -> State:
    """The encoder's half of a checkpoint; all blocks share the first one's bias."""
    first = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    tensors = {"relative.weight": state[first], "final_norm.weight": state["encoder.final_layer_norm.weight"]}
    for i in range(spec.layers):
        theirs, ours = f"encoder.block.{i}.layer", f"blocks.{i}"
        tensors |= joined(state, f"{ours}.attention.qkv", f"{theirs}.0.SelfAttention", ("q", "k", "v"), WEIGHT)
        tensors |= copy(state, f"{ours}.attention.out", f"{theirs}.0.SelfAttention.o", WEIGHT)
        tensors |= copy(state, f"{ours}.norm1", f"{theirs}.0.layer_norm", WEIGHT)
        tensors |= copy(state, f"{ours}.norm2", f"{theirs}.1.layer_norm", WEIGHT)
        up = ("wi_0", "wi_1") if spec.gated else ("wi",)
        tensors |= joined(state, f"{ours}.up", f"{theirs}.1.DenseReluDense", up, WEIGHT)
        tensors |= copy(state, f"{ours}.down", f"{theirs}.1.DenseReluDense.wo", WEIGHT)
    return tensors
