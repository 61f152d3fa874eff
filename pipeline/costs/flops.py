"""Floating-point operations of a transformer, from plain integers. A multiply and an add count as two."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TransformerSizes:
    """What decides the count: sizes of the network and its input, how many last tokens are read out, into how many
    scores each. Queries and keys of all heads are as wide as the network unless they say otherwise; a gated
    feed-forward has three matrices. With `recurrent` the layers are LSTMs.
    """

    width: int
    layers: int
    inner_width: int
    tokens: int
    readout: int
    features: int
    scores: int
    query_width: int | None = None
    key_width: int | None = None
    gated: bool = False
    recurrent: bool = False


def adapter_flops(sizes: TransformerSizes) -> int:
    """The input layer, forward, for one example."""
    return 2 * sizes.tokens * sizes.features * sizes.width


def block_flops(sizes: TransformerSizes, last: int) -> int:
    """One block, forward, for one example, when only the `last` tokens' output is wanted.

    Keys and values are projected for every token; queries, attention, output projection and feed-forward only for
    the wanted ones. Norms, activations and softmax are left out: they are below 1 % of the count.
    """
    width, tokens, query_width = sizes.width, sizes.tokens, sizes.query_width or sizes.width
    if sizes.recurrent:
        return 2 * tokens * 8 * width**2  # four gates, each from the input and from the state
    keys_values = 2 * tokens * width * 2 * (sizes.key_width or width)
    queries_and_output = 2 * last * width * 2 * query_width
    attention = 2 * 2 * last * tokens * query_width
    feed_forward = 2 * (2 + sizes.gated) * last * width * sizes.inner_width
    return keys_values + queries_and_output + attention + feed_forward


def forward_flops(sizes: TransformerSizes) -> int:
    """Adapter and blocks, forward, for one example; the last block computes the readout only."""
    if not sizes.layers:
        return adapter_flops(sizes)
    whole = (sizes.layers - 1) * block_flops(sizes, sizes.tokens)
    return adapter_flops(sizes) + whole + block_flops(sizes, sizes.readout)


def head_flops(sizes: TransformerSizes) -> int:
    """The output layer, forward, for one example."""
    return 2 * sizes.readout * sizes.width * sizes.scores


def finetune_step_flops(sizes: TransformerSizes, batch: int) -> int:
    """One step of the FPT fine-tune: forward, and backward without the gradients of frozen matrices.

    The blocks' backward computes gradients of their inputs only, which costs one more forward. Attention costs 2.5
    forwards there: both operands of both products carry a gradient, and the fused kernel computes the scores again.
    Adapter and head also get gradients of their own weights.
    """
    width, tokens = sizes.query_width or sizes.width, sizes.tokens
    pairs = tokens * ((sizes.layers - 1) * tokens + sizes.readout)
    attention = 2 * 2 * width * pairs if sizes.layers and not sizes.recurrent else 0
    blocks = forward_flops(sizes) - adapter_flops(sizes)
    forward = adapter_flops(sizes) + blocks + head_flops(sizes)
    backward = adapter_flops(sizes) + blocks + 3 * attention // 2 + 2 * head_flops(sizes)
    return batch * (forward + backward)


def logistic_epoch_flops(rows: int, width: int, scores: int) -> int:
    """One pass of logistic regression over its rows: scores and their gradient."""
    return 2 * 2 * rows * width * scores


def rotation_flops(width: int, scores: int) -> int:
    """A product of the square matrix of eigenvectors with one column for each score."""
    return 2 * width**2 * scores


def eigen_flops(width: int) -> int:
    """All eigenvalues and eigenvectors of a symmetric matrix: 9 n³ (Golub and Van Loan 2013, section 8.3.3).

    That is the QR algorithm; LAPACK's divide and conquer, which runs, takes no more.
    """
    return 9 * width**3


def ridge_path_flops(width: int, scores: int, penalties: int) -> int:
    """Ridge regression from its moments: their eigenvectors, the targets' product with them, one for each penalty."""
    return eigen_flops(width) + (1 + penalties) * rotation_flops(width, scores)


def logistic_pass_flops(rows: int, width: int, scores: int) -> int:
    """One evaluation of L-BFGS: a pass over the rows, to the weights by the eigenvectors and back with the gradient."""
    return logistic_epoch_flops(rows, width, scores) + 2 * rotation_flops(width, scores)


def logistic_path_flops(rows: int, width: int, scores: int, penalties: int, epochs: int) -> int:
    """Logistic regression from its moments: their eigenvectors, all evaluations, each penalty's start and end."""
    around = penalties * 2 * rotation_flops(width, scores)
    return eigen_flops(width) + around + epochs * logistic_pass_flops(rows, width, scores)


def gram_flops(rows: int, width: int, scores: int) -> int:
    """The moments of features and targets: half of a symmetric product, and the product with the targets."""
    return rows * width * (width + 1) + 2 * rows * width * scores
