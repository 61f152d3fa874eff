"""The Frozen Pretrained Transformer: a trained input and output layer around a backbone of which little trains.

Source: arXiv 2103.05247, section 2.2, and `FPT` in the official code. Deviations: unless `position_rows` is "all" only
the position rows that the task uses are parameters (in the official code the others are too, and never move); the head
is applied to the readout tokens alone, so that the last block computes only those; padding is masked, and an example is
read off at its last real token; `positions` also means T5's bias by distance, which the official code leaves frozen
with everything that is neither a norm nor GPT-2's table.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from pipeline.backbones.adapters import embedding_adapter, make_adapter
from pipeline.backbones.dropout import dropout
from pipeline.backbones.init import linear_head
from pipeline.backbones.lstm import Lstm
from pipeline.backbones.packed import pack_frozen
from pipeline.backbones.transformer import Transformer
from pipeline.errors import PermafrostError
from pipeline.finetune.groups import choose
from pipeline.finetune.lora import add_lora
from pipeline.finetune.settings import Recipe
from pipeline.finetune.shape import Shape


class FrozenPretrainedTransformer(nn.Module):
    """Inputs to scores at the readout tokens: one a class of each answer, or a single one where answers are numbers."""

    def __init__(self, shape: Shape, backbone: Transformer, settings: Recipe, table: Tensor | None = None) -> None:
        """Put adapter and head, drawn from the seed, around `backbone`, and mark what trains.

        `table` is the backbone's own embedding, `(id, width)`, for a task in its ids.

        Raises:
            PermafrostError: an entry of `trainable` names no group or layer, or all of them together name nothing.
        """
        super().__init__()
        width = backbone.spec.width
        if table is None:
            self.adapter = make_adapter(shape.kind, shape.size, width, settings.adapter_gain, settings.seed)
        else:
            self.embedding = embedding_adapter(table)
        self.backbone = backbone
        if settings.position_rows == "used" and backbone.position is not None:
            self.backbone.position = nn.Parameter(backbone.position[: shape.length].clone())
        self.readout, self.scores_each = shape.readout, max(1, shape.classes)
        self.head = linear_head(width, shape.scores, settings.seed)
        self.input_dropout = settings.input_dropout if shape.kind == "patches" else 0.0
        self.frozen_dropout = settings.frozen_dropout
        add_lora(backbone, settings.trainable, settings.seed)
        names = [name for name, _ in self.named_parameters()]
        chosen = choose(names, settings.trainable, backbone.spec.layers, settings.final_norm)
        if not chosen:
            raise PermafrostError(
                f"finetune.trainable: {', '.join(settings.trainable)} names nothing that this network has",
                mend="add output, the head that every task has",
            )
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(name in chosen)

    def forward(
        self,
        inputs: Float[Tensor, "batch token feature"] | Integer[Tensor, "batch token"],
        lengths: Integer[Tensor, " batch"] | None = None,
    ) -> Float[Tensor, "batch answer score"]:
        """The scores of each answer, read off the last `readout` tokens, the first token's answers first.

        `lengths` are the numbers of real tokens, where examples are padded on the right.
        """
        vectors = self.adapter(inputs) if hasattr(self, "adapter") else self.embedding(inputs)
        x = dropout(vectors, self.input_dropout if self.training else 0.0)
        if lengths is None:
            hidden = self.backbone(x, self.readout)
        else:
            back = torch.arange(self.readout, 0, -1, device=x.device)
            mask = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
            hidden = self.backbone(x, (lengths[:, None] - back).clamp_min(0), mask)
        return self.head(hidden).unflatten(-1, (-1, self.scores_each)).flatten(1, 2)

    def train(self, mode: bool = True) -> FrozenPretrainedTransformer:
        """Training mode for what trains; the frozen body follows only when `frozen_dropout` says so."""
        super().train(mode)
        if not self.frozen_dropout:
            self.backbone.eval()
        return self


def cast_frozen(model: FrozenPretrainedTransformer, device: torch.device) -> bool:
    """Hold the frozen matrices and their biases in bfloat16, on a CPU packed for its products where it can do that.

    What trains keeps its float32. False where a CPU lacks these products: training is then slower.
    """
    packed = device.type != "cpu" or isinstance(model.backbone, Lstm) or pack_frozen(model.backbone.blocks)
    for module in model.modules():
        if isinstance(module, nn.Linear) and not module.weight.requires_grad:
            for parameter in module.parameters():
                if not parameter.requires_grad:
                    parameter.data = parameter.data.to(torch.bfloat16)
    return packed
