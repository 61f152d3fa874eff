from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from pipeline.backbones.load import find_backbone
from pipeline.backbones.settings import PathSource, RandomSource
from pipeline.costs.flops import TransformerSizes, finetune_step_flops
from pipeline.finetune.batches import load_split
from pipeline.finetune.groups import count_by_group
from pipeline.finetune.loop import finetune
from pipeline.finetune.model import FrozenPretrainedTransformer
from pipeline.finetune.shape import shape_of
from pipeline.tasks.task import Split, TaskData
from pipeline.tasks.tokens import open_tokens
from pipeline.tasks.writing import write_tokens
from tests.finetune.recipe import CPU, settings
from tests.tiny import BERT, backbone


def made(embedding):
    """Ids 1 to 9 in 2 to 6 tokens; the label says whether the last real one is odd."""
    rng = np.random.default_rng(0)

    def split(examples):
        lengths = rng.integers(2, 7, examples).astype(np.int32)
        ids = rng.integers(1, 10, (examples, 6)).astype(np.int16)
        ids[np.arange(6) >= lengths[:, None]] = 0
        return Split.of(ids, ids[np.arange(examples), lengths - 1][:, None].astype(np.int64) % 2, lengths)

    splits = {"train": split(120), "validation": split(40), "test": split(40)}
    return TaskData("ids", 2, 1, splits, {}, vocabulary=10, embedding=embedding)


@pytest.fixture(params=["adapter", "backbone"])
def ids(request, tmp_path):
    write_tokens(tmp_path / "ids", "ids", {}, made(request.param), {"majority class": 0.5})
    return open_tokens(tmp_path / "ids")


def test_it_learns_to_read_the_last_real_token(ids, tiny_bert):
    recipe = settings(steps=150, evaluate_every=50, lr=1e-2, frozen_dropout=False)
    result = finetune(ids, backbone(tiny_bert), recipe, CPU, "k")
    assert result.metrics["test_accuracy"] >= 0.9


def test_what_stands_in_the_padding_changes_nothing(ids, tiny_bert):
    body = backbone(tiny_bert)
    table = body.load_embedding() if ids.embedding == "backbone" else None
    model = FrozenPretrainedTransformer(shape_of(ids), body.load(), settings(), table).eval()
    split = load_split(ids, "test", 0, CPU)
    assert split.lengths is not None
    inputs = split.inputs.clone()
    inputs[torch.arange(6) >= split.lengths[:, None]] = 7
    with torch.no_grad():
        torch.testing.assert_close(model(inputs, split.lengths), model(split.inputs, split.lengths))
        assert not torch.allclose(model(inputs), model(split.inputs))


def test_a_batch_is_cut_to_its_longest_and_only_what_ran_is_counted(ids, tiny_bert):
    body = backbone(tiny_bert)
    table = body.load_embedding() if ids.embedding == "backbone" else None
    model = FrozenPretrainedTransformer(shape_of(ids), body.load(), settings(), table).eval()
    split = load_split(ids, "train", 0, CPU)
    assert split.lengths is not None
    rows = np.flatnonzero(split.lengths.numpy() <= 3)
    inputs, lengths, _ = split.pick(rows, 1)
    assert inputs.shape[1] == 3
    with torch.no_grad():
        torch.testing.assert_close(model(inputs, lengths), model(split.inputs[rows], lengths))
    longest = [int(split.lengths[split.batch(8, 0, step)].max()) for step in range(6)]
    cost = finetune(ids, body, settings(steps=6, batch_size=8), CPU, "k").cost
    sizes = TransformerSizes(32, 2, 64, 0, 1, 0, 2)
    assert cost.flops == sum(finetune_step_flops(replace(sizes, tokens=tokens), 8) for tokens in longest)


def test_only_a_new_embedding_trains_as_the_input_layer(ids, tiny_bert):
    body = backbone(tiny_bert)
    own = ids.embedding == "backbone"
    table = body.load_embedding() if own else None
    counts = count_by_group(FrozenPretrainedTransformer(shape_of(ids), body.load(), settings(), table))
    assert counts.get("input") == (None if own else 10 * 32)


def test_a_task_read_at_its_last_position_has_no_lengths(ids):
    fixed = replace(ids, choices={"readout_at": "last_position"})
    assert load_split(fixed, "test", 0, CPU).lengths is None


def test_a_random_backbones_table_is_drawn_by_its_law_and_apart_from_its_weights(tiny_bert):
    like = PathSource(source="path", path=str(tiny_bert))
    drawn = find_backbone(RandomSource(source="random", like=like, seed=3, std=0.5))
    before = drawn.load().blocks[0].up.weight.clone()
    table = drawn.load_embedding()
    assert table.shape == (BERT["vocab_size"], BERT["hidden_size"])
    assert float(table.std()) == pytest.approx(0.5, rel=0.1)
    assert torch.equal(drawn.load().blocks[0].up.weight, before)
