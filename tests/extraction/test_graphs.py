"""When a shape gets a CUDA graph, which ones are dropped, and that results do not depend on it; without a GPU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pipeline.extraction import forward
from pipeline.extraction.forward import Reader
from pipeline.extraction.graphs import GraphCache
from pipeline.extraction.transfer import Arriving, one_behind, to_device
from tests.architectures import CONFIGS
from tests.tiny import random_transformer

FAMILIES = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


class Recorder:
    """Stands in for CUDA: static buffers that every replay overwrites, and a list of what was recorded."""

    def __init__(self, change: float = 0.0) -> None:
        self.recorded: list[tuple[int, ...]] = []
        self.replayed: list[tuple[int, ...]] = []
        self.change = change

    def __call__(self, forward, inputs):
        self.recorded.append(tuple(inputs.shape))
        static, outputs = inputs.clone(), forward(inputs)

        def replay(inputs):
            self.replayed.append(tuple(inputs.shape))
            static.copy_(inputs)
            outputs.copy_(forward(static) + self.change)
            return outputs.clone()

        return replay


def states(inputs: Tensor) -> Tensor:
    """Stands in for a forward pass."""
    return (inputs.float() * 3).sum(-1)[:, :, None, None].expand(-1, -1, 1, 2).contiguous()


def batch(rows: int, tokens: int = 4, dtype: torch.dtype = torch.float32) -> Tensor:
    """Random inputs of a shape."""
    return (torch.randn(rows, tokens, 3) * 9).to(dtype)


def test_a_shape_is_recorded_once_it_has_come_often_enough():
    record = Recorder()
    cache = GraphCache(states, record, after=2)
    for turn in range(5):
        x = batch(8)
        assert torch.equal(cache(x), states(x))
        assert record.recorded == ([] if turn < 2 else [(8, 4, 3)])
    assert len(record.replayed) == 3  # the first, beside the pass that it is compared with, and the last two passes


def test_other_shapes_and_dtypes_are_other_graphs():
    record = Recorder()
    cache = GraphCache(states, record, after=0)
    for x in (batch(8), batch(7), batch(8, 5), batch(8, dtype=torch.int64), batch(8)):
        assert torch.equal(cache(x), states(x))
    assert record.recorded == [(8, 4, 3), (7, 4, 3), (8, 5, 3), (8, 4, 3)]


def test_the_graph_that_was_used_longest_ago_makes_room_and_has_to_earn_its_place_again():
    record = Recorder()
    cache = GraphCache(states, record, after=1, most=2)
    for rows in (1, 1, 2, 2, 1, 3, 3):  # 2 is dropped when 3 comes the second time
        cache(batch(rows))
    assert [shape[0] for shape in cache.graphs] == [1, 3]
    cache(batch(2))
    assert [shape[0] for shape in record.recorded] == [1, 2, 3]
    cache(batch(2))
    assert [shape[0] for shape in record.recorded] == [1, 2, 3, 2]
    assert [shape[0] for shape in cache.graphs] == [3, 2]


def test_a_result_stays_when_the_next_batch_overwrites_the_buffers():
    cache = GraphCache(states, Recorder(), after=0)
    first, second = batch(8), batch(8)
    cache(batch(8))
    kept = cache(first)
    cache(second)
    assert torch.equal(kept, states(first))


def test_a_graph_with_other_low_bits_is_never_used_and_said_so(capsys):
    record = Recorder(change=1e-3)
    cache = GraphCache(states, record, after=0)
    for _ in range(3):
        x = batch(8)
        assert torch.equal(cache(x), states(x))
    assert len(record.recorded) == 1
    assert (
        "no CUDA graph for batches of shape (8, 4, 3), which is slower: its numbers differ" in capsys.readouterr().out
    )


def test_the_same_nan_is_the_same():
    record = Recorder()
    cache = GraphCache(lambda inputs: states(inputs) * torch.nan, record, after=0)
    cache(batch(8))
    cache(batch(8))
    assert len(record.replayed) == 2


def test_what_cannot_be_recorded_goes_on_without_a_graph(capsys):
    def fails(forward, inputs):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has …")

    cache = GraphCache(states, fails, after=0)
    for _ in range(2):
        x = batch(8)
        assert torch.equal(cache(x), states(x))
    assert capsys.readouterr().out.count("which is slower: CUDA out of memory. Tried to allocate 2.00 GiB.\n") == 1


def test_an_error_of_the_forward_pass_itself_is_not_hidden():
    def fails(inputs):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        GraphCache(fails, Recorder(), after=0)(batch(8))


@FAMILIES
def test_whole_batches_of_every_family_are_the_same_through_graphs(config, monkeypatch):
    record = Recorder()
    monkeypatch.setattr(forward, "CudaRecorder", lambda: record)
    network, names, lengths = random_transformer(config), ("0", "1", "final"), torch.full((2,), 5)
    readers = [Reader(nn.Identity(), network, names, ("last",)) for _ in range(2)]
    readers[0]._recordable = True
    for _ in range(5):
        x = torch.randn(2, 5, 32)
        with_graphs, without = (reader.read(x.clone(), lengths, 1) for reader in readers)
        assert torch.equal(with_graphs, without)
    readers[0].read(torch.randn(2, 5, 32), torch.tensor([5, 3]), 1)
    assert record.recorded == [(2, 5, 32)]
    assert len(record.replayed) == 2


class Devices(TorchDispatchMode):
    """The devices of all operands and results of the operations inside."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for part in tree_leaves((args, kwargs, out)):
            self.seen |= {part.device.type} if isinstance(part, Tensor) else set()
        return out


@FAMILIES
@pytest.mark.parametrize("readouts", [("task",), ("last", "mean")])
def test_nothing_in_a_whole_batch_depends_on_numbers_or_comes_from_the_host(config, readouts):
    """The meta device has no numbers, so that what would ask for one fails; a graph could hold neither."""
    reader = Reader(nn.Identity(), random_transformer(config).to("meta"), ("0", "1", "final"), readouts)
    x = torch.empty(2, 5, 32, device="meta")
    reader.read(x, torch.full((2,), 5), 2)  # weights are prepared
    with torch.no_grad(), Devices() as devices:
        reader._full(2, x)
    assert devices.seen == {"meta"}


def test_each_batch_is_finished_after_the_next_has_begun():
    order = []

    def begun():
        for number in range(3):
            order.append(f"begin {number}")
            yield number

    for number in one_behind(begun()):
        order.append(f"finish {number}")
    assert order == ["begin 0", "begin 1", "finish 0", "begin 2", "finish 1", "finish 2"]
    assert list(one_behind([])) == []
    assert list(one_behind([7])) == [7]


def test_on_the_cpu_nothing_is_copied():
    values = torch.randn(2, 1, 1, 3)
    assert to_device(values, torch.device("cpu")) is values
    assert Arriving(values).numpy().base is not None
    assert Arriving(values).numpy().__array_interface__["data"][0] == values.data_ptr()
