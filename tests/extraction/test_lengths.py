"""Texts of unequal length and ids through the whole engine, from tokens on disk to the store."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch.utils.flop_counter import FlopCounterMode

from pipeline.errors import PermafrostError
from pipeline.extraction.engine import Where, extract, plan_extraction
from pipeline.extraction.readout import kept_together
from pipeline.extraction.shard import Inputs, make_reader, read_rows
from pipeline.extraction.sources import find_source, pass_flops
from pipeline.features import open_features
from pipeline.tasks.task import Split
from pipeline.tasks.tokens import open_tokens
from tests.tiny import backbone, cache_settings, write_task

CPU = torch.device("cpu")


@pytest.fixture
def texts(tmp_path):
    """40 rows of 1 to 12 ids below 11, padded with 0; rows 5 and 6 are equal."""
    generator = np.random.default_rng(0)
    lengths = generator.integers(2, 13, 40).astype(np.int32)
    lengths[:3] = 3, 8, 12
    ids = generator.integers(1, 11, (40, 12)).astype(np.int16)
    ids[6], lengths[6] = ids[5], lengths[5]
    ids[:, :2] = np.stack([np.arange(40) % 10 + 1, np.arange(40) // 10 + 1], axis=1)  # distinct from the start
    ids[6] = ids[5]
    ids[np.arange(12) >= lengths[:, None]] = 0
    train = Split.of(ids, (ids[:, :1] % 2).astype(np.uint8), lengths)
    return write_task(tmp_path / "texts", train, kind="ids", vocabulary=11, embedding="backbone")


def features(texts, tiny_bert, tmp_path, name, **changes):
    plan = plan_extraction(open_tokens(texts), backbone(tiny_bert), cache_settings(**changes), {})
    extract(plan, tmp_path / name, Where(CPU, tmp_path / "work"))
    return open_features(tmp_path / name)


@pytest.mark.parametrize("readout", ["last", "mean", "max"])
def test_rows_do_not_depend_on_what_they_were_batched_with(texts, tiny_bert, tmp_path, readout):
    alone = features(texts, tiny_bert, tmp_path, "alone", batch_tokens=1, readout=readout).read("train")
    together = features(texts, tiny_bert, tmp_path, "together", batch_tokens=500, readout=readout).read("train")
    np.testing.assert_allclose(alone, together, rtol=1e-4, atol=2e-5)


def test_the_store_holds_what_transformers_gives(texts, tiny_bert, tmp_path):
    from transformers import AutoModel

    model = AutoModel.from_pretrained(tiny_bert, add_pooling_layer=False).eval()
    tokens = open_tokens(texts)
    ids, lengths = np.asarray(tokens.splits["train"].inputs[:]), tokens.splits["train"].read_lengths()
    mean = features(texts, tiny_bert, tmp_path, "mean", readout="mean").read("train")[:, 0, 0]
    for row, length in enumerate(lengths):
        with torch.no_grad():
            hidden = model(torch.from_numpy(ids[row : row + 1, :length].astype(np.int64))).last_hidden_state[0]
        np.testing.assert_allclose(mean[row], hidden.mean(0), rtol=1e-4, atol=2e-5)


def test_equal_texts_are_stored_once(texts, tiny_bert, tmp_path):
    store = features(texts, tiny_bert, tmp_path, "once", readout="mean")
    assert store.shape[0] == 39
    rows = store.rows("train")
    assert rows[5] == rows[6]


def test_all_positions_are_zero_at_padding(texts, tiny_bert, tmp_path):
    store = features(texts, tiny_bert, tmp_path, "all", readout="all", shard_bytes=20_000, chunk_bytes=5_000)
    values, lengths = store.read("train")[:, :, 0], open_tokens(texts).splits["train"].read_lengths()
    real = np.arange(12) < lengths[:, None]
    assert (np.abs(values).sum(-1) > 0).tolist() == real.tolist()


def test_ids_of_another_tokenizer_are_refused(tiny_bert, tmp_path):
    ids = np.zeros((4, 3), np.int16)
    path = write_task(
        tmp_path / "t", Split.of(ids, ids[:, :1].astype(np.uint8)), kind="ids", vocabulary=99, embedding="backbone"
    )
    plan = plan_extraction(open_tokens(path), backbone(tiny_bert), cache_settings(), {})
    with pytest.raises(PermafrostError, match=r"tokenizer has 99 ids, the backbone's embedding table 11 rows"):
        extract(plan, tmp_path / "out", Where(CPU, tmp_path / "work"))


def test_several_readouts_come_from_one_pass(texts, tiny_bert, tmp_path):
    together = features(texts, tiny_bert, tmp_path, "three", layers=(1, "final"), readout=("last", "mean", "max"))
    names = ["1:last", "1:mean", "1:max", "final:last", "final:mean", "final:max"]
    assert together.layers == names
    assert set(names) == set(together.manifest["fidelity"]["relative_error"])
    for readout in ("last", "mean", "max"):
        alone = features(texts, tiny_bert, tmp_path, readout, layers=(1, "final"), readout=readout).read("train")
        found = together.read("train", layers=[f"1:{readout}", f"final:{readout}"])
        np.testing.assert_allclose(found, alone, rtol=1e-4, atol=2e-5)


def test_readouts_that_keep_different_numbers_of_vectors_are_refused():
    assert kept_together(("task", "last"), answers=1, tokens=12) == 1
    with pytest.raises(PermafrostError, match=r"different numbers of vectors of an example \(task 3, mean 1\)"):
        kept_together(("task", "mean"), answers=3, tokens=12)
    with pytest.raises(ValidationError, match="all keeps every token's vector"):
        cache_settings(readout=("all", "task"))


@pytest.mark.parametrize(
    "changes",
    [{"readout": "last"}, {"readout": "mean"}, {"readout": ("last", "max")}, {"readout": "last", "layers": (0, 1)}],
)
def test_the_counted_operations_are_those_of_each_row_alone(texts, tiny_bert, changes):
    """Less depth, fewer positions and no padding cost less; PyTorch's counter watches the real products."""
    tokens, settings, source = open_tokens(texts), cache_settings(**changes), find_source(backbone(tiny_bert).settings)
    inputs = Inputs(tokens)
    reader = make_reader(tokens, source, settings, "cpu", "float32")
    stored = inputs.read(np.arange(len(inputs.lengths)))
    with FlopCounterMode(display=False) as counter:
        for row in range(len(inputs.lengths)):
            read_rows(reader, inputs, stored[row : row + 1], inputs.lengths[row : row + 1])
    assert pass_flops(source, tokens, settings, inputs.lengths) == counter.get_total_flops()
