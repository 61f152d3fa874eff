from __future__ import annotations

import numpy as np
import pytest
import torch.nn.functional as F

from pipeline.errors import PermafrostError
from pipeline.finetune.batches import load_split
from pipeline.finetune.fresh import stream_of
from pipeline.finetune.loop import finetune
from pipeline.tasks.bit_memory import BitMemory
from pipeline.tasks.bit_xor import BitXor
from pipeline.tasks.listops import ListOps
from pipeline.tasks.places import Places
from pipeline.tasks.tokens import open_tokens
from pipeline.tasks.writing import write_tokens
from tests.finetune.recipe import CPU, settings
from tests.tiny import backbone

SIZES = {"train": 24, "validation": 8, "test": 8}
TASKS = {
    "bit_memory": {"kind": "bit_memory", "seed": 3, "patterns": 2, "bits": 8, "patch": 4, **SIZES},
    "bit_xor": {"kind": "bit_xor", "seed": 3, "bits": 3, "split": "unseen", "validation": 0.2, "test": 0.2},
    "listops": {"kind": "listops", "seed": 3, "variant": "repaired", "max_tokens": 12, **SIZES},
    "listops_fixed": {"kind": "listops", "seed": 3, "variant": "paper-code", "max_tokens": 12, **SIZES},
}
KINDS = {"bit_memory": BitMemory, "bit_xor": BitXor, "listops": ListOps}


def written(folder, name):
    entry = TASKS[name]
    task = KINDS[entry["kind"]](**entry).load(Places(folder / "cache", folder / "work", offline=True))
    write_tokens(folder / name, name, entry, task, {})
    return open_tokens(folder / name)


@pytest.mark.parametrize("name", TASKS)
def test_the_stream_of_seed_0_begins_with_what_is_stored_and_goes_on(tmp_path, name):
    tokens = written(tmp_path, name)
    stream, stored = stream_of(tokens, CPU), load_split(tokens, "train", 0, CPU)
    rows = np.concatenate([stream.batch(8, 0, number) for number in range(3)])
    assert rows.tolist() == list(range(24))
    inputs, lengths, labels = stream.pick(rows, step=1)
    assert inputs[:, : stored.inputs.shape[1]].equal(stored.inputs[:24])
    assert inputs.dtype == stored.inputs.dtype
    assert labels.equal(stored.labels[:24])
    assert (lengths is None) == (stored.lengths is None)
    assert lengths is None or stored.lengths is None or lengths.equal(stored.lengths[:24])


@pytest.mark.parametrize("name", TASKS)
def test_other_seeds_and_steps_have_other_batches(tmp_path, name):
    stream = stream_of(written(tmp_path, name), CPU)
    batches = [stream.pick(stream.batch(24, seed, number), 1)[0] for seed, number in ((0, 0), (0, 2), (1, 0), (2, 0))]
    wide = [F.pad(part.flatten(1).float(), (0, 99 - part.flatten(1).shape[1])) for part in batches]
    assert not any(one.equal(other) for i, one in enumerate(wide) for other in wide[:i])


def test_a_batch_is_a_function_of_seed_and_step(tmp_path):
    stream = stream_of(written(tmp_path, "bit_memory"), CPU)
    one, again, later, other = (
        stream.pick(stream.batch(8, seed, number), step=0)[0] for seed, number in ((0, 5), (0, 5), (0, 6), (1, 5))
    )
    assert one.equal(again)
    assert not one.equal(later)
    assert not one.equal(other)


def test_inputs_held_out_of_xor_are_never_drawn(tmp_path):
    tokens = written(tmp_path, "bit_xor")
    stream, test = stream_of(tokens, CPU), load_split(tokens, "test", 0, CPU)
    for seed in (0, 1, 7):
        drawn = stream.pick(stream.batch(200, seed, 0), step=0)[0].flatten(1)
        assert not (drawn[:, None] == test.inputs.flatten(1)).all(-1).any()


@pytest.mark.parametrize("name", ["bit_memory", "listops"])
def test_it_trains_on_more_than_is_stored_and_is_scored_on_what_is(tmp_path, tiny_bert, name):
    tokens = written(tmp_path, name)
    result = finetune(tokens, backbone(tiny_bert), settings(examples="fresh"), CPU, "k")
    assert result.metrics["examples_seen"] > len(tokens.splits["train"])
    assert result.metrics["test_answers"] == tokens.splits["test"].labels.size
    stored = finetune(tokens, backbone(tiny_bert), settings(), CPU, "k")
    assert stored.curve != result.curve


def test_a_task_with_a_fixed_number_of_examples_is_refused(tokens, tiny_bert):
    with pytest.raises(PermafrostError, match="xor is no endless stream"):
        finetune(tokens, backbone(tiny_bert), settings(examples="fresh"), CPU, "k")
