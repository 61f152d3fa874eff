"""Networks outside the families, through transformers' own code, and that code as a witness for the families."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from pipeline.backbones.load import find_backbone
from pipeline.backbones.settings import PathSource, RandomSource
from pipeline.errors import PermafrostError
from pipeline.extraction.engine import Where, extract, plan_extraction
from pipeline.extraction.forward import Reader
from pipeline.features import open_features
from pipeline.tasks.tokens import open_tokens
from tests.architectures import CONFIGS, reference_states, write_reference
from tests.tiny import cache_settings, write_xor

OPT = {
    "model_type": "opt",
    "hidden_size": 32,
    "word_embed_proj_dim": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "ffn_dim": 48,
    "vocab_size": 11,
    "max_position_embeddings": 24,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 1,
}
WITH_WITNESS = [name for name in CONFIGS if name not in ("vit", "longformer")]


def source(folder) -> PathSource:
    return PathSource(source="path", path=str(folder))


def fidelity(folder, tmp_path) -> dict:
    """What the engine found about the network in `folder`."""
    tokens = open_tokens(write_xor(tmp_path / "xor", bits=3))
    plan = plan_extraction(tokens, find_backbone(source(folder)), cache_settings(), {"task": "xor", "backbone": "any"})
    extract(plan, tmp_path / "features", Where(torch.device("cpu"), tmp_path / "work"))
    return open_features(tmp_path / "features").manifest["fidelity"]


@torch.no_grad()
def test_a_model_outside_the_families_is_read_layer_by_layer(tmp_path):
    model = write_reference(tmp_path, OPT)
    found = find_backbone(source(tmp_path))
    assert (found.spec.width, found.spec.layers, found.spec.positions) == (32, 2, 24)
    x, lengths = torch.randn(3, 9, 32), torch.tensor([9, 5, 1])
    names = ("0", "1", "2", "final")
    states = Reader(nn.Identity(), found.load_frozen(), names, ("last",)).read(x, lengths, 1)
    for row, length in enumerate(lengths):
        alone = model(inputs_embeds=x[row : row + 1, :length], output_hidden_states=True)
        wanted = [*alone.hidden_states[:2], alone.last_hidden_state, alone.last_hidden_state]
        for layer, hidden in enumerate(wanted):
            error = (states[row, 0, layer] - hidden[0, -1]).norm() / hidden[0, -1].norm()
            assert error <= 1e-5


def test_it_goes_through_the_whole_engine_and_says_that_it_is_slow(tmp_path, capsys):
    write_reference(tmp_path / "opt", OPT)
    found = fidelity(tmp_path / "opt", tmp_path)
    assert "transformers' own code" in capsys.readouterr().out
    assert found["relative_error"]["final"] < 1e-5


def test_it_cannot_be_fine_tuned_or_drawn_and_says_so(tmp_path):
    write_reference(tmp_path, OPT)
    with pytest.raises(PermafrostError, match=r"a opt can be cached and probed, but not fine-tuned[\s\S]*gpt2"):
        find_backbone(source(tmp_path)).load()
    with pytest.raises(PermafrostError, match="model_type 'opt' is not supported"):
        find_backbone(RandomSource(source="random", like=source(tmp_path), seed=0))


def test_a_model_type_that_nobody_knows_is_named(tmp_path):
    write_reference(tmp_path, OPT)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mamba9"}))
    with pytest.raises(PermafrostError, match="model_type 'mamba9' cannot be read"):
        find_backbone(source(tmp_path))


@pytest.mark.parametrize("name", WITH_WITNESS)
@torch.no_grad()
def test_the_witness_gives_transformers_states_of_every_layer(name, tmp_path):
    x = torch.randn(2, 9, 32)
    wanted = reference_states(write_reference(tmp_path, CONFIGS[name]), x)
    found = find_backbone(source(tmp_path))
    witness = found.load_witness()
    names = (*(str(depth) for depth in range(len(wanted) - 1)), "final")
    states = Reader(nn.Identity(), witness, names, ("all",)).read(x, torch.tensor([9, 9]), 1)
    for layer, hidden in enumerate(wanted):
        assert (states[:, :, layer] - hidden).norm() / hidden.norm() <= 1e-5


@pytest.mark.parametrize(("name", "code"), [("gpt2", "transformers 5"), ("vit", "this program's float32")])
def test_the_manifest_says_whose_code_the_reference_was(name, code, tmp_path):
    write_reference(tmp_path / name, CONFIGS[name])
    found = fidelity(tmp_path / name, tmp_path)
    assert found["reference"].startswith(code)
    assert found["relative_error"]["final"] < 1e-5
