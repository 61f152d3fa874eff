"""Where the first layer looks when it answers: the mean over its heads, as in figures 2 and 3 of arXiv 2103.05247."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Integer
from matplotlib.figure import Figure
from torch import Tensor
from torch.overrides import TorchFunctionMode

from pipeline.finetune.model import FrozenPretrainedTransformer

NO_MAP = """<svg xmlns="http://www.w3.org/2000/svg" width="640" height="32" font-family="sans-serif" font-size="14">
<text x="8" y="21">{}</text>
</svg>
"""
EXAMPLES = 256
"""Examples that the mean is taken over, at most."""


class _FirstWeights(TorchFunctionMode):
    """Works out the weights of the first attention that runs, from what its kernel is given."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: Tensor | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention and self.weights is None:
            with torch.autocast(args[0].device.type, enabled=False):
                self.weights = _weights(*args[:2], **kwargs)
        return func(*args, **kwargs)


def _weights(
    q: Tensor, k: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False, scale: float | None = None, **_: Any
) -> Tensor:
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)  # heads of keys that several heads of queries share
    scores = q.float() @ k.float().transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    return scores.softmax(-1)


@torch.no_grad()
def first_attention(
    model: FrozenPretrainedTransformer, inputs: Tensor, lengths: Integer[Tensor, " example"] | None = None
) -> Float[np.ndarray, "example readout token"] | None:
    """Weights from each token that is read out to each input token, the mean over heads; None without attention.

    Where examples are padded on the right, `lengths` count their real tokens: none looks at padding.
    """
    was, mode = model.training, _FirstWeights()
    model.eval()
    with mode:
        model(inputs[:EXAMPLES], None if lengths is None else lengths[:EXAMPLES])
    model.train(was)
    if mode.weights is None:
        return None
    weights = mode.weights.mean(1)
    if lengths is not None and weights.shape[1] > model.readout:  # a last block has its readout's rows alone
        back = torch.arange(model.readout, 0, -1, device=weights.device)
        rows = (lengths[:EXAMPLES, None] - back).clamp_min(0)
        weights = weights.take_along_dim(rows[..., None], 1)
    return weights[:, -model.readout :].cpu().numpy()


def draw_attention(weights: Float[np.ndarray, "example readout token"], title: str, path: Path) -> None:
    """Write a PNG: one example beside the mean over all; equal weights are equal bytes."""
    figure = Figure(figsize=(9.5, 1.6 + 3 * weights.shape[1] / weights.shape[2]), layout="constrained")
    figure.suptitle(f"{title}: first layer, mean over heads")
    names = ("the first test example", f"mean of {len(weights)} test examples")
    for axes, name, shown in zip(figure.subplots(1, 2), names, (weights[0], weights.mean(0)), strict=True):
        image = axes.imshow(shown, cmap="magma", vmin=0.0, interpolation="nearest", aspect="auto")
        axes.locator_params(integer=True)
        axes.set(title=name, xlabel="input token", ylabel="output token")
        figure.colorbar(image, ax=axes)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, metadata={"Software": None})


def write_no_map(reason: str, path: Path) -> None:
    """Write a small SVG that says why there is no map: a folder that is shown among pictures is never just empty."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(NO_MAP.format(escape(reason)), encoding="utf-8")
