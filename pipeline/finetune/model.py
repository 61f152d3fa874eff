"""The Frozen Pretrained Transformer: a trained input and output layer around a backbone of which little trains.

Source: arXiv 2103.05247, section 2.2, and `FPT` in the official code. Deviations: only the position rows that the
task uses are parameters (the official code makes all of the table trainable, where unused rows never move); the head
is applied to the readout tokens alone, so that the last block computes only those.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pipeline.backbones.dropout import dropout
from pipeline.backbones.init import linear_adapter, linear_head
from pipeline.backbones.packed import pack_frozen
from pipeline.backbones.transformer import Transformer
from pipeline.finetune.settings import FinetuneSettings, Group
from pipeline.tasks.tokens import Tokens


class FrozenPretrainedTransformer(nn.Module):
    """Inputs to class scores at the readout tokens."""

    def __init__(self, tokens: Tokens, backbone: Transformer, settings: FinetuneSettings) -> None:
        """Put adapter and head, drawn from the seed, around `backbone`, and mark what trains."""
        super().__init__()
        width = backbone.spec.width
        self.adapter = linear_adapter(tokens.features, width, settings.adapter_gain, settings.seed)
        self.backbone = backbone
        self.backbone.position = nn.Parameter(backbone.position[: tokens.length].clone())
        self.readout, self.classes = tokens.readout, tokens.classes
        self.head = linear_head(width, tokens.answers // tokens.readout * tokens.classes, settings.seed)
        self.input_dropout = settings.input_dropout
        self.frozen_dropout = settings.frozen_dropout
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(group_of(name) in settings.trainable)

    def forward(self, inputs: Float[Tensor, "batch token feature"]) -> Float[Tensor, "batch answer class"]:
        """Class scores of each answer, read off the last `readout` tokens, the first token's answers first."""
        x = dropout(self.adapter(inputs), self.input_dropout if self.training else 0.0)
        return self.head(self.backbone(x, self.readout)).unflatten(-1, (-1, self.classes)).flatten(1, 2)

    def train(self, mode: bool = True) -> FrozenPretrainedTransformer:
        """Training mode for what trains; the frozen body follows only when `frozen_dropout` says so."""
        super().train(mode)
        if not self.frozen_dropout:
            self.backbone.eval()
        return self


def group_of(name: str) -> Group | None:
    """The group that a parameter belongs to by its name; None for attention, feed-forward and token type."""
    if name.startswith("adapter."):
        return "input"
    if name.startswith("head."):
        return "output"
    if name == "backbone.position":
        return "positions"
    return "layernorm" if "norm" in name else None


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that train, by name."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def count_by_group(model: nn.Module) -> dict[str, int]:
    """How many numbers train in each group."""
    counts: dict[str, int] = {}
    for name, parameter in trained(model).items():
        group = group_of(name) or "frozen"
        counts[group] = counts.get(group, 0) + parameter.numel()
    return counts


def cast_frozen(model: FrozenPretrainedTransformer, device: torch.device) -> bool:
    """Hold the frozen matrices and their biases in bfloat16, on a CPU packed for its products where it can do that.

    What trains keeps its float32. False where a CPU lacks these products: training is then slower.
    """
    packed = device.type != "cpu" or pack_frozen(model.backbone.blocks)
    for module in model.modules():
        if isinstance(module, nn.Linear) and not module.weight.requires_grad:
            module.to(torch.bfloat16)
    return packed
