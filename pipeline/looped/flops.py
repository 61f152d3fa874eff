"""What a pass of the network costs, from plain integers: the dense matrix products, a multiply-add as two FLOPs."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.looped.model import LoopedTransformer


@dataclass(frozen=True)
class LayerShape:
    """One layer: heads, axes of a score, axes of a value, hidden units."""

    heads: int
    score: int
    rank: int
    hidden: int


def pass_flops(columns: int, width: int, layers: list[LayerShape]) -> int:
    """FLOPs of one instruction of one program on a state of `columns` x `width`.

    Per head: queries and keys 2 * 2 n d s, values and output 2 * 2 n d r, scores 2 n^2 s, mixing 2 n^2 r. Per layer:
    the feed-forward products 2 * 2 n d h. Softmax, ReLU, biases and residual sums are left out, as usual.
    """
    total = 0
    for layer in layers:
        project = 4 * columns * width * (layer.score + layer.rank)
        mix = 2 * columns * columns * (layer.score + layer.rank)
        total += layer.heads * (project + mix) + 4 * columns * width * layer.hidden
    return total


def layer_shapes(network: LoopedTransformer) -> list[LayerShape]:
    """The shapes that `pass_flops` needs, read off the weights."""
    return [
        LayerShape(block.heads, block.wq.shape[1], block.wv.shape[1], block.w1.shape[0]) for block in network.layers
    ]
