"""Low-rank updates of the attention's projections, through peft: `lora(r)` in `trainable`.

Source: "LoRA" (arXiv 2106.09685). Queries, keys and values are one matrix here and share one update, as in peft's own
choice for GPT-2. The update is not scaled (α = r) and has no dropout; A is drawn U(±1/√width), B is zero.
"""

from __future__ import annotations

import math
import re

import torch

from pipeline.backbones.transformer import Transformer
from pipeline.errors import PermafrostError
from pipeline.finetune.groups import layers_of


def add_lora(backbone: Transformer, trainable: tuple[str, ...], seed: int) -> None:
    """Put the updates that `trainable` names beside the frozen matrices, all of them with one rank.

    Raises:
        PermafrostError: two ranks are named, or the backbone has no attention.
    """
    entries = [entry for entry in trainable if entry.startswith("lora")]
    if not entries:
        return
    ranks = {int(rank) for entry in entries for rank in re.findall(r"\((\d+)\)", entry)}
    layers = set().union(*(layers_of(entry, backbone.spec.layers) for entry in entries))
    targets = [f"blocks.{layer}.attention.qkv" for layer in sorted(layers)]
    known = {name for name, _ in backbone.named_modules()}
    if len(ranks) > 1 or not targets or not set(targets) <= known:
        why = f"ranks {sorted(ranks)} at once" if len(ranks) > 1 else "a backbone without attention"
        raise PermafrostError(f"finetune.trainable: {', '.join(entries)} asks for {why}")
    from peft import LoraConfig, inject_adapter_in_model

    rank = ranks.pop()
    inject_adapter_in_model(LoraConfig(r=rank, lora_alpha=rank, target_modules=targets), backbone)
    generator, bound = torch.Generator().manual_seed(seed), 1 / math.sqrt(backbone.spec.width)
    with torch.no_grad():
        for name, parameter in sorted(backbone.named_parameters()):
            if ".lora_A." in name:
                parameter.uniform_(-bound, bound, generator=generator)
