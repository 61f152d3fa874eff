"""Weights drawn by a law that is written out here, so that a library's update cannot change a random baseline."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pipeline.backbones.places import Table
from pipeline.backbones.transformer import Transformer


@torch.no_grad()
def draw_weights(model: Transformer, seed: int, std: float, scale_residual: bool) -> None:
    """Weights, positions and token type N(0, std), biases 0, norms 1 and 0, in the order of the parameters' names; a
    ViT's positions are zeros in every arm.

    With `scale_residual` the projections into the residual stream (`attention.out`, `down`) are divided by
    √(2 × layers): "Language Models are Unsupervised Multitask Learners" (2019), section 2.3.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in sorted(model.named_parameters()):
        if name == "position" and model.spec.places == Table(zeros=True):
            parameter.zero_()
        elif "norm" in name:
            parameter.fill_(1.0 if name.endswith("weight") else 0.0)
        elif name.endswith("bias"):
            parameter.zero_()
        else:
            residual = scale_residual and name.endswith(("attention.out.weight", "down.weight"))
            scale = std / math.sqrt(2 * model.spec.layers) if residual else std
            parameter.normal_(0.0, scale, generator=generator)


@torch.no_grad()
def draw_like(model: Transformer, pretrained: dict[str, Tensor], seed: int) -> None:
    """Each tensor N(mean, std) of the pretrained one of the same name, in the order of the names.

    Raises:
        KeyError: a name is missing in `pretrained`.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in sorted(model.named_parameters()):
        wanted = pretrained[name].float()
        parameter.normal_(float(wanted.mean()), float(wanted.std(correction=0)), generator=generator)


def linear_adapter(features: int, width: int, gain: float, seed: int) -> nn.Linear:
    """The input layer for patches: orthogonal weights times `gain`, zero bias (official code, `FPT.__init__`)."""
    adapter = nn.Linear(features, width)
    nn.init.orthogonal_(adapter.weight, gain=gain, generator=torch.Generator().manual_seed(seed))
    nn.init.zeros_(adapter.bias)
    return adapter


def linear_head(width: int, classes: int, seed: int) -> nn.Linear:
    """The output layer, by PyTorch's own law for `nn.Linear`, U(±1/√width), drawn from `seed`."""
    head = nn.Linear(width, classes)
    bound = 1 / math.sqrt(width)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.uniform_(-bound, bound, generator=generator)
    return head


def orthogonality_error(weight: Float[Tensor, "width features"], gain: float) -> float:
    """How far the columns of a tall weight are from orthogonal vectors of length `gain`; 0 is exact."""
    gram = weight.T.double() @ weight.double()
    return float((gram - gain**2 * torch.eye(gram.shape[0])).abs().max())
