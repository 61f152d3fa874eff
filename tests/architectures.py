"""A tiny config of each family of networks, and transformers' own model of it with large random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tests.tiny import BERT, GPT2

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 11}
T5 = {"model_type": "t5", "d_model": 32, "num_layers": 3, "num_heads": 2, "d_kv": 8, "d_ff": 48, "vocab_size": 11}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
ROTARY = {**SIZES, "num_key_value_heads": 2, "max_position_embeddings": 24}
CONFIGS: dict[str, dict[str, Any]] = {
    "bert": BERT,
    "gpt2": GPT2,
    "roberta": {**SIZES, "model_type": "roberta", "max_position_embeddings": 26, "pad_token_id": 1},
    "longformer": {**SIZES, "model_type": "longformer", "max_position_embeddings": 26, "attention_window": 4},
    "vit": {**SIZES, "model_type": "vit", "image_size": 16, "patch_size": 4},
    "t5": T5 | {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 7},
    "t5-gated": T5 | {"feed_forward_proj": "gated-gelu"},
    "llama": {**ROTARY, "model_type": "llama"},
    "llama3": {**ROTARY, "model_type": "llama", "rope_parameters": LLAMA3, "head_dim": 12},
    "mistral": {**ROTARY, "model_type": "mistral", "sliding_window": 4},
    "qwen2": {**ROTARY, "model_type": "qwen2"},
}


def reference(config: dict[str, Any], **more: Any) -> nn.Module:
    """transformers' model of a config, of an encoder-decoder the encoder."""
    from transformers import AutoConfig, AutoModel, T5EncoderModel

    kept = {name: value for name, value in config.items() if name != "model_type"} | more
    made = AutoConfig.for_model(config["model_type"], **kept)
    torch.manual_seed(0)
    model = T5EncoderModel(made) if config["model_type"] == "t5" else AutoModel.from_config(made)
    for name, parameter in model.named_parameters():
        center = 1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0
        parameter.data.normal_(center, 0.3)
    return model.eval()


def write_reference(folder: Path, config: dict[str, Any]) -> nn.Module:
    """The same, saved as `save_pretrained` does."""
    model = reference(config)
    model.save_pretrained(folder)
    return model


@torch.no_grad()
def reference_states(model: nn.Module, x: Tensor) -> list[Tensor]:
    """Layer 0, what leaves each block, and `final`, by transformers' code."""
    caught: list[Tensor] = []
    blocks = next(part for part in model.modules() if isinstance(part, nn.ModuleList) and len(part) > 1)
    hooks = [
        block.register_forward_hook(lambda _, __, out: caught.append(out if isinstance(out, Tensor) else out[0]))
        for block in blocks
    ]
    if model.config.model_type == "vit":  # as in the official FPT code: its blocks and last norm, without its patches
        hidden = x
        for block in blocks:
            hidden = block(hidden)
        states = [x, *caught, model.layernorm(hidden)]
    else:
        found = model(inputs_embeds=x, output_hidden_states=True)
        states = [found.hidden_states[0], *caught, found.last_hidden_state]
    for hook in hooks:
        hook.remove()
    return [state[:, : x.shape[1]] for state in states]
