"""An LSTM in a transformer's place: the baseline of arXiv 2103.05247, tables 1 and 3 to 5.

Deviations from the official code: the state starts at zero, there it is drawn anew in every forward pass, evaluation
included, so that its scores are stochastic; `layernorm` is one norm behind each layer that starts at 1 and 0, there
three inside each cell, of both pre-activations and of the cell's state, that start at U(±1/√width) and have nine times
as many numbers; nothing is dropped out between steps; positions, where there are any, are drawn N(0, 0.02), as GPT-2's.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from pipeline.backbones.lstm_settings import LstmSource
from pipeline.backbones.places import Geometry
from pipeline.backbones.spec import UNBOUNDED, Spec
from pipeline.backbones.transformer import PLAIN, Kept, Transformer, rows_at

POSITION_STD = 0.02


class LstmLayer(nn.Module):
    """One layer over all tokens, in float32, with what may stand around it."""

    def __init__(self, width: int, residual: bool, layernorm: bool) -> None:
        super().__init__()
        self.residual = residual
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.norm = nn.LayerNorm(width) if layernorm else None

    def forward(
        self,
        x: Float[Tensor, "batch token width"],
        kept: Kept | None = None,
        mask: Bool[Tensor, "batch token"] | None = None,
        geometry: Geometry = PLAIN,
    ) -> Float[Tensor, "batch kept width"]:
        """The output at the `kept` tokens (default: all). Padding is on the right, where no real token sees it."""
        with torch.autocast(x.device.type, enabled=False):
            hidden = self.lstm(x.float())[0]
        hidden = x + hidden if self.residual else hidden
        hidden = hidden if self.norm is None else self.norm(hidden)
        return hidden if kept is None else rows_at(hidden, kept)


class Lstm(Transformer):
    """Layers of LSTM under the interface of a transformer: layer i is what leaves layer i, `final` is the last."""

    def __init__(self, source: LstmSource) -> None:
        super().__init__(replace(spec_of_lstm(source), layers=0, positions=source.tokens))
        self.spec = spec_of_lstm(source)
        self.blocks = nn.ModuleList(
            LstmLayer(source.width, source.residual, source.layernorm) for _ in range(source.layers)
        )
        self.final_norm = None
        if not source.positions:
            self.position = None

    def embed(self, x: Float[Tensor, "batch token width"]) -> Float[Tensor, "batch token width"]:
        """Positions, where there are any, added to the input vectors."""
        return x if self.position is None else x + self.position[: x.shape[1]]


def spec_of_lstm(source: LstmSource) -> Spec:
    """The sizes of an LSTM; what only a transformer has is nothing."""
    return Spec(
        width=source.width,
        layers=source.layers,
        heads=1,
        inner_width=0,
        positions=source.tokens if source.positions else UNBOUNDED,
        norm_eps=1e-5,
        activation="gelu",
        prenorm=True,
        causal=True,
        token_types=False,
        embedding_dropout=0.0,
        attention_dropout=0.0,
        residual_dropout=0.0,
    )


@torch.no_grad()
def draw_lstm(source: LstmSource) -> Lstm:
    """PyTorch's own law for `nn.LSTM`, U(±1/√width) for weights and biases, in the order of the names."""
    model, generator = Lstm(source), torch.Generator().manual_seed(source.seed)
    for name, parameter in sorted(model.named_parameters()):
        if ".lstm." in name:
            bound = 1 / math.sqrt(source.width)
            parameter.uniform_(-bound, bound, generator=generator)
        elif name == "position":
            parameter.normal_(0.0, POSITION_STD, generator=generator)
    return model.eval().requires_grad_(False)
