"""The CPU's sum and norm in pieces: by definition, and the same bits whatever the size of a piece."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pipeline.backbones.transformer import RmsNorm
from pipeline.extraction import frozen_attention, sums
from pipeline.extraction.sums import PiecewiseNorm, pieces, sum_and_norm

CPU = torch.device("cpu")
NORMS = {"layer": nn.LayerNorm, "rms": RmsNorm}


def test_pieces_hold_every_row_once(monkeypatch):
    monkeypatch.setattr(sums, "PIECE_BYTES", 100)
    assert list(pieces(7, 40, CPU)) == [slice(0, 2), slice(2, 4), slice(4, 6), slice(6, 8)]
    assert list(pieces(2, 1000, CPU)) == [slice(0, 1), slice(1, 2)]  # a row is never cut
    assert list(pieces(7, 40, torch.device("cuda"))) == [slice(0, 7)]


@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize("postnorm", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@torch.no_grad()
def test_a_piece_at_a_time_gives_the_bits_of_all_at_once(kind, postnorm, dtype, monkeypatch):
    norm = NORMS[kind](24)
    for parameter in norm.parameters():
        parameter.normal_()
    stream, added = torch.randn(3, 5, 24), torch.randn(3, 5, 24).to(dtype)
    total = stream + added
    wanted = norm(total)
    monkeypatch.setattr(sums, "PIECE_BYTES", 4 * 24 * 4)
    prepared = sum_and_norm(norm, dtype, postnorm)
    assert isinstance(prepared, PiecewiseNorm)
    found = prepared(stream, added)
    assert torch.equal(found, wanted.to(dtype))
    assert torch.equal(stream, wanted if postnorm else total)


@torch.no_grad()
def test_a_norm_with_nothing_to_add_leaves_the_stream(monkeypatch):
    norm, stream = nn.LayerNorm(24), torch.randn(5, 24)
    before = stream.clone()
    monkeypatch.setattr(sums, "PIECE_BYTES", 200)
    assert torch.equal(sum_and_norm(norm, torch.float32, False)(stream), norm(before))
    assert torch.equal(stream, before)


@pytest.mark.parametrize("mask", ["none", "causal", "padding", "bias"])
@torch.no_grad()
def test_attention_written_out_is_the_same_in_pieces_and_what_pytorch_computes(mask, monkeypatch):
    q, k, v = torch.randn(3, 2, 5, 6, 8)
    padding = torch.arange(6) < torch.tensor([6, 5, 5, 2, 1])[:, None, None, None]
    added = {"padding": padding, "bias": torch.randn(1, 2, 6, 6)}.get(mask)
    whole = frozen_attention._mix_short(q, k, v, added, mask == "causal")
    monkeypatch.setattr(sums, "PIECE_BYTES", 2 * 6 * 6 * 4 * 2)  # two rows of the five at a time
    assert torch.equal(frozen_attention._mix_short(q, k, v, added, mask == "causal"), whole)
    torch.testing.assert_close(whole, frozen_attention._mix(q, k, v, added, mask == "causal"), rtol=1e-5, atol=1e-6)
