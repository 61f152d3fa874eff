from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from pipeline.backbones.load import find_backbone
from pipeline.backbones.lstm import draw_lstm
from pipeline.backbones.lstm_settings import LstmSource
from pipeline.errors import PermafrostError
from pipeline.extraction.engine import Where, extract, plan_extraction
from pipeline.features import open_features
from pipeline.tasks.tokens import open_tokens
from tests.tiny import cache_settings

CPU = torch.device("cpu")
PLAIN = LstmSource("lstm", seed=0, width=16, layers=2, layernorm=False, tokens=6)
WHOLE = replace(PLAIN, layernorm=True, residual=True, positions=True)


@pytest.fixture
def tokens(tiny_tokens):
    return open_tokens(tiny_tokens)


def by_hand(model, x):
    """Gates input, forget, cell and output, from a state of zeros; then residual and norm."""
    x = x if model.position is None else x + model.position[: x.shape[1]]
    for layer in model.blocks:
        w, u, b, c = (getattr(layer.lstm, f"{name}_l0") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
        hidden = cell = torch.zeros(len(x), x.shape[2])
        steps = []
        for token in x.unbind(1):
            i, f, g, o = (token @ w.T + b + hidden @ u.T + c).chunk(4, dim=1)
            cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
            hidden = o.sigmoid() * cell.tanh()
            steps.append(hidden)
        out = torch.stack(steps, dim=1)
        out = x + out if layer.residual else out
        x = out if layer.norm is None else torch.nn.functional.layer_norm(out, out.shape[-1:])
    return x


@pytest.mark.parametrize("source", [PLAIN, WHOLE], ids=["plain", "layernorm-residual-positions"])
def test_it_is_what_its_equations_say(source):
    model, x = draw_lstm(source), torch.randn(3, 6, 16, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(model(x, kept=2), by_hand(model, x)[:, -2:])


def test_its_state_is_zero_so_that_two_passes_agree():
    model, x = draw_lstm(WHOLE).train(), torch.randn(3, 6, 16)
    assert torch.equal(model(x, kept=1), model(x, kept=1))


def test_its_law_is_written_out():
    model = draw_lstm(replace(WHOLE, width=64, tokens=200))
    for name, weight in model.named_parameters():
        if ".lstm." in name:
            assert float(weight.abs().max()) <= 1 / 8
            assert float(weight.std()) == pytest.approx(1 / 8 / 3**0.5, rel=0.2)
    assert float(model.position.std()) == pytest.approx(0.02, rel=0.05)
    again = draw_lstm(replace(WHOLE, width=64, tokens=200))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    other = draw_lstm(replace(PLAIN, seed=1)).blocks[0].lstm.weight_ih_l0
    assert not torch.equal(other, draw_lstm(PLAIN).blocks[0].lstm.weight_ih_l0)


def test_its_hidden_states_are_cached_and_read_back(tokens, tmp_path):
    found = find_backbone(WHOLE)
    plan = plan_extraction(tokens, found, cache_settings(layers=("all",)), {"task": "xor", "backbone": "lstm"})
    extract(plan, tmp_path / "features", Where(CPU, tmp_path / "work"))
    store = open_features(tmp_path / "features")
    stored = tokens.splits["test"].inputs[:]
    vectors = plan_adapter(plan)(torch.from_numpy(tokens.normalise(stored)))
    final = found.load()(vectors, kept=3).detach().numpy()
    kept = store.read("test")
    assert kept.shape[2] == 4
    torch.testing.assert_close(torch.from_numpy(kept[:, :, -1]), torch.from_numpy(final), rtol=1e-4, atol=1e-5)


def plan_adapter(plan):
    from pipeline.backbones.adapters import make_adapter

    cache = plan.settings
    return make_adapter("patches", plan.tokens.features, 16, cache.adapter_gain, cache.adapter_seed)


def test_ids_of_a_tokenizer_are_refused():
    with pytest.raises(PermafrostError, match="an LSTM has no tokenizer"):
        find_backbone(PLAIN).load_embedding()
