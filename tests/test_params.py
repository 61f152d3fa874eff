from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.backbones.settings import RandomSource, backbone_settings
from pipeline.extraction.settings import CacheSettings
from pipeline.finetune.pretrain import PretrainSettings
from pipeline.finetune.settings import FinetuneSettings
from pipeline.params import Params, ParamsError
from pipeline.probes.settings import ProbeSettings
from pipeline.tasks.registry import task_settings
from tests.imports import ROOT
from tests.tiny import PARAMS


def params(tmp_path: Path, old: str = "", new: str = "") -> Params:
    """The tiny params.yaml with one piece of text replaced."""
    assert old in PARAMS
    path = tmp_path / "params.yaml"
    path.write_text(PARAMS.replace(old, new, 1))
    return Params(path)


def test_the_projects_own_file_is_valid():
    own = Params(ROOT / "params.yaml")
    own.section("cache", CacheSettings)
    own.section("probe", ProbeSettings)
    own.section("finetune", FinetuneSettings)
    own.section("pretrain", PretrainSettings)
    for name in own.names("tasks"):
        task_settings(own, name)
    for name in own.names("backbones"):
        backbone_settings(own, name)


def test_numbers_are_read_as_yaml_1_2_reads_them(tmp_path):
    settings = params(tmp_path, "lr: 0.001", "lr: 1e-3").section("finetune", FinetuneSettings)
    assert settings.lr == 0.001


def test_off_is_a_word_and_not_false(tmp_path):
    with pytest.raises(ParamsError, match=r'finetune.frozen_dropout: Input should be a valid boolean, found "off"'):
        params(tmp_path, "frozen_dropout: true", "frozen_dropout: off").section("finetune", FinetuneSettings)


def test_an_unknown_key_is_named_with_its_line_and_the_nearest_known_key(tmp_path):
    with pytest.raises(ParamsError, match=r"params.yaml:14: unknown key cache.layer; did you mean 'layers'\?"):
        params(tmp_path, "  layers: [final]", "  layer: [final]").section("cache", CacheSettings)


def test_an_unknown_key_of_a_task_is_named_with_the_nearest_of_its_own_kind(tmp_path):
    with pytest.raises(ParamsError, match=r"params.yaml:7: unknown key tasks.xor.bit; did you mean 'bits'\?"):
        task_settings(params(tmp_path, "bits: 3", "bit: 3"), "xor")


def test_a_missing_key_is_named(tmp_path):
    with pytest.raises(ParamsError, match=r"cache.adapter_gain is missing"):
        params(tmp_path, "  adapter_gain: 1.41\n", "").section("cache", CacheSettings)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("lr: 0.001", "lr: fast", r'finetune.lr: .*number, found "fast"'),
        ("lr: 0.001", "lr: -1", r"finetune.lr: .*greater than 0, found -1"),
        ("steps: 6", "steps: 2.5", r"finetune.steps: .*, found 2.5"),
        ("lr_sweep: null", "lr_sweep: [0.1, 0.2, 0.1]", r"finetune.lr_sweep: .*0.1 stands there twice"),
        ("steps: 6", "steps: true", r"finetune.steps: .*, found true"),
        ("output, layernorm", "output, layernrm", r"finetune.trainable.1: .*layernorm.*found \"layernrm\""),
    ],
)
def test_a_mistyped_value_is_named_with_what_was_found(tmp_path, old, new, message):
    with pytest.raises(ParamsError, match=r"params.yaml:\d+: " + message):
        params(tmp_path, old, new).section("finetune", FinetuneSettings)


def test_an_unknown_name_is_named_with_the_nearest(tmp_path):
    with pytest.raises(ParamsError, match=r"tasks has no entry 'xorr'; did you mean 'xor'\?"):
        task_settings(params(tmp_path), "xorr")
    with pytest.raises(ParamsError, match=r"backbones has no entry 'gpt9'; known: tiny, tiny-random"):
        backbone_settings(params(tmp_path), "gpt9")


def test_an_unknown_section_is_named(tmp_path):
    with pytest.raises(ParamsError, match=r"params.yaml:23: unknown section 'prob'; did you mean 'probe'\?"):
        params(tmp_path, "probe:", "prob:")


def test_a_random_backbone_carries_the_whole_entry_it_is_like(tmp_path):
    settings = backbone_settings(params(tmp_path), "tiny-random")
    assert isinstance(settings, RandomSource)
    assert settings.like == backbone_settings(params(tmp_path), "tiny")
    with pytest.raises(ParamsError, match=r"backbones.tiny-random.like: .*found \"tiny\""):
        backbone_settings(params(tmp_path, "like: *tiny", "like: tiny"), "tiny-random")


@pytest.mark.parametrize("text", ["a: [1", "grid: 1\ngrid: 2", "- a", ""])
def test_a_file_that_is_not_a_mapping_of_sections_is_refused(tmp_path, text):
    (tmp_path / "params.yaml").write_text(text)
    with pytest.raises(ParamsError, match=r"not valid YAML|holds no sections"):
        Params(tmp_path / "params.yaml")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ParamsError, match=r"params.yaml does not exist"):
        Params(tmp_path / "params.yaml")


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ("seed: 2026-01-01", r"params.yaml:\d+: tasks.xor.seed is a date to YAML \(2026-01-01\)"),
        ("seed: !!binary aGVsbG8=", "tasks.xor.seed is a bytes to YAML"),
        ("seed: !!python/object:os.system x", "tasks.xor.seed is a TaggedScalar to YAML"),
        ("seed: {1: 2}", "the key 1 is no word"),
        ("seed: .inf", "tasks.xor.seed: inf is no finite number"),
        ("seed: .nan", "tasks.xor.seed: nan is no finite number"),
        ("seed: 12345678901234567890", "no finite number of at most 2\\^53"),
        ("seed: -1", "tasks.xor.seed: Input should be greater than or equal to 0, found -1"),
    ],
)
def test_what_yaml_can_hold_and_no_setting_can_be_is_refused(tmp_path, new, message):
    with pytest.raises(ParamsError, match=message):
        task_settings(params(tmp_path, "seed: 0", new), "xor")


@pytest.mark.parametrize("text", ["null", "3", "x", "[a]", "[null]", "[[a]]"])
def test_a_section_of_names_that_is_no_mapping_is_refused(tmp_path, text):
    path = tmp_path / "params.yaml"
    path.write_text(f"tasks: {text}\n")
    with pytest.raises(ParamsError, match=r"params\.yaml:1: tasks must map names to their settings"):
        Params(path).names("tasks")


def test_a_file_that_holds_itself_is_refused(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text("&all\ntasks: *all\n")
    with pytest.raises(ParamsError, match="tasks holds itself, by an anchor"):
        Params(path)


def test_an_unknown_key_below_a_key_that_is_also_a_kind_is_named(tmp_path):
    path = tmp_path / "params.yaml"
    task = "{kind: text, seed: 0, train: a.csv, text: text, label: label, max_tokens: 9, tokenizer: {fodler: x}}"
    path.write_text(f"tasks:\n  mine: {task}\n")
    with pytest.raises(ParamsError, match=r"params.yaml:2: unknown key tasks.mine.tokenizer.fodler"):
        task_settings(Params(path), "mine")


def test_an_empty_text_for_a_list_is_refused(tmp_path):
    with pytest.raises(ParamsError, match=r"cache\.readout"):
        params(tmp_path, "readout: task", "readout: ''").section("cache", CacheSettings)
