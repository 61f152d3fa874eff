from __future__ import annotations

import errno
import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from filelock import FileLock

from pipeline import device
from pipeline.backbones.init import linear_adapter
from pipeline.backbones.load import find_backbone
from pipeline.backbones.settings import PackageSource, PathSource, RandomSource, with_whole_paths
from pipeline.errors import PermafrostError
from pipeline.extraction import engine, fidelity, shard
from pipeline.extraction.engine import Where, extract, plan_extraction
from pipeline.extraction.fidelity import FidelityError
from pipeline.extraction.forward import Reader
from pipeline.features import open_features
from pipeline.features.__main__ import main as commands
from pipeline.features.workspace import shard_key
from pipeline.identity import file_digests
from pipeline.tasks.task import Split
from pipeline.tasks.tokens import open_tokens
from pipeline.work import WorkBusy
from tests.tiny import backbone, cache_settings, write_task

CPU = torch.device("cpu")
NAMES = {"task": "xor", "backbone": "tiny"}


@pytest.fixture
def run(tiny_tokens, tiny_bert, tmp_path):
    """Extract the tiny task; gives the published store's path."""

    def extraction(name="xor-tiny", fresh=False, tokens=tiny_tokens, scheduler="inline", **changes):
        plan = plan_extraction(open_tokens(tokens), backbone(tiny_bert), cache_settings(**changes), NAMES)
        where = Where(CPU, tmp_path / "work", scheduler=scheduler, fresh=fresh)
        extract(plan, tmp_path / "features" / name, where)
        return tmp_path / "features" / name

    return extraction


def everything(path):
    return file_digests(path) | {"manifest.json": (path / "manifest.json").read_bytes()}


def test_features_are_the_hidden_states_of_each_example(run, tiny_tokens, tiny_bert):
    store = open_features(run())
    tokens, network = open_tokens(tiny_tokens), backbone(tiny_bert).load()
    adapter = linear_adapter(1, 32, gain=1.41, seed=0)
    for split in ("train", "validation", "test"):
        inputs = tokens.normalise(np.asarray(tokens.splits[split].inputs[:]))
        with torch.no_grad():
            for example, values in enumerate(inputs):
                hidden = network.embed(adapter(torch.from_numpy(values)[None]))
                for block in network.blocks:
                    hidden = block(hidden)
                found = store.read(split, rows=[example])[0, :, 0]
                np.testing.assert_allclose(found, hidden[0, -3:], rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(store.labels(split), tokens.splits[split].read_labels())


def test_several_layers_stand_under_their_names(run):
    every = open_features(run("a", layers=(0, 1, 2, "final")))
    assert every.layers == ["0", "1", "2", "final"]
    values = every.read("train")
    np.testing.assert_array_equal(values[:, :, 2], values[:, :, 3])  # BERT: the last block ends in the last norm
    np.testing.assert_allclose(values[:, :, 3], open_features(run("b")).read("train")[:, :, 0], rtol=1e-5, atol=1e-6)
    first = open_features(run("c", layers=(0, 1))).read("train")
    np.testing.assert_allclose(first, values[:, :, :2], rtol=1e-5, atol=1e-6)


def test_batch_size_does_not_change_features_beyond_rounding(run):
    one = open_features(run("a", batch_tokens=1)).read("train")
    many = open_features(run("b", batch_tokens=10_000)).read("train")
    np.testing.assert_allclose(one, many, rtol=1e-4, atol=1e-5)


def test_two_runs_give_the_same_bytes(run):
    assert everything(run("a")) == everything(run("b"))


def test_a_run_that_was_cut_off_gives_the_same_bytes_and_repeats_no_shard(run, monkeypatch):
    whole = everything(run("whole"))
    computed: list[int] = []
    compute = engine.compute_shard

    def stops_at_third(*args):
        if len(computed) == 2:
            raise KeyboardInterrupt
        computed.append(args[1])
        return compute(*args)

    monkeypatch.setattr(engine, "compute_shard", stops_at_third)
    with pytest.raises(KeyboardInterrupt):
        run("cut")
    monkeypatch.setattr(engine, "compute_shard", lambda *args: (computed.append(args[1]), compute(*args))[1])
    path = run("cut")
    assert sorted(computed) == list(range(len(computed)))
    assert len(computed) >= 4
    assert everything(path) == whole


def test_a_damaged_shard_in_the_work_folder_is_computed_again_alone(run, tmp_path, monkeypatch):
    whole = everything(run())
    shutil.rmtree(tmp_path / "features")
    shard = next((tmp_path / "work").rglob("features/c/1/0/0/0"))
    shard.write_bytes(shard.read_bytes()[:-3])
    computed: list[int] = []
    compute = engine.compute_shard
    monkeypatch.setattr(engine, "compute_shard", lambda *args: (computed.append(args[1]), compute(*args))[1])
    assert everything(run()) == whole
    assert computed == [1]
    run(fresh=True)
    assert len(computed) > 2


def test_what_a_killed_writer_left_is_not_published(run, tmp_path):
    whole = everything(run())
    stray = next((tmp_path / "work").rglob("store")) / "features/c/0/0/0.abc.partial"
    stray.parent.mkdir(exist_ok=True, parents=True)
    stray.write_text("half")
    assert everything(run()) == whole


def test_a_tolerance_is_no_part_of_the_works_key():
    keys = {shard_key({"settings": {"threads": 1, "tolerance": share}}, {}) for share in (0.1, 0.2)}
    assert len(keys) == 1
    assert shard_key({"settings": {"threads": 2, "tolerance": 0.1}}, {}) not in keys


def test_the_check_runs_with_the_settings_threads_though_no_shard_is_computed_here(run):
    run()
    torch.set_num_threads(2)
    run()
    assert torch.get_num_threads() == 1


def test_other_inputs_at_the_same_place_are_seen_by_a_process_that_lives_on(run, tmp_path):
    """As a worker of a cluster does: the tokens are made again between two runs."""
    for seed in (0, 1):
        bits = np.random.default_rng(seed).integers(0, 2, (20, 6, 1)).astype(np.uint8)
        path = write_task(tmp_path / "again", Split.of(bits, bits[:, :1, 0]))
        found = everything(run(f"seen-{seed}", tokens=path))
    shard.prepared.cache_clear()
    assert everything(run("fresh-eyes", tokens=path)) == found


def test_a_crash_while_publishing_leaves_the_old_store_or_none(run, tmp_path, monkeypatch):
    whole = everything(run())
    rename, seen = Path.rename, []

    def stops(self, target):
        if self.name == "xor-tiny.partial":
            seen.append((tmp_path / "features/xor-tiny").exists())
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", stops)
    with pytest.raises(KeyboardInterrupt):
        run()
    monkeypatch.undo()
    assert seen == [False]
    path = run()
    assert everything(path) == whole
    assert [left.name for left in path.parent.iterdir() if left.name.startswith(path.name + ".")] == []


def test_damage_in_place_to_a_published_small_file_does_not_reach_the_work(run, tmp_path):
    path = run()
    whole = everything(path)
    with (path / "zarr.json").open("r+b") as file:
        file.write(b"#")
    assert everything(run()) == whole


def test_states_that_are_all_zero_have_no_error(run, monkeypatch):
    monkeypatch.setattr(fidelity, "read_rows", lambda *_: np.zeros((1, 1, 1, 1), np.float32))
    with pytest.raises(FidelityError):
        run()
    monkeypatch.setattr(fidelity, "decode", lambda stored, _: np.zeros(stored.shape, np.float32))
    assert open_features(run()).manifest["fidelity"]["relative_error"] == {"final": 0.0}


def test_other_settings_are_other_work_and_old_work_is_pruned(run, tmp_path):
    run(adapter_seed=0)
    run(adapter_seed=1)
    folders = [path for path in (tmp_path / "work" / "cache" / "xor-tiny").iterdir() if path.is_dir()]
    assert len(folders) == 1


def test_a_second_writer_is_refused(run, tmp_path):
    root = tmp_path / "work" / "cache" / "xor-tiny"
    root.mkdir(parents=True)
    with FileLock(root / "lock"), pytest.raises(WorkBusy, match=r"another process is at work"):
        run()


def test_a_full_disk_costs_no_finished_shard(run, monkeypatch):
    write, calls = shard.write_shard, []

    def disk_fills_up(*args):
        calls.append(args)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(*args)

    monkeypatch.setattr(shard, "write_shard", disk_fills_up)
    with pytest.raises(OSError, match="No space left on device"):
        run()
    monkeypatch.setattr(shard, "write_shard", lambda *args: (calls.append(args), write(*args)))
    open_features(run())
    assert [args[2] for args in calls[:3]] == [0, 1, 1]


@pytest.fixture
def overflowing(monkeypatch):
    """A network in which hidden states of some rows overflow: in bfloat16 only, or in float32 as well."""

    def overflow(where):
        read = Reader.read

        def broken(self, inputs, lengths, answers):
            states = read(self, inputs, lengths, answers).clone()
            if where(self):
                states[inputs.sum(dim=(1, 2)) == 5] = torch.nan
            return states

        monkeypatch.setattr(Reader, "read", broken)
        shard.exact_reader.cache_clear()

    return overflow


@pytest.fixture
def bfloat16(monkeypatch):
    """bfloat16 in earnest, on a CPU that has no instructions for it too."""
    monkeypatch.setattr(shard, "computed_in", lambda device, dtype: dtype)
    shard.prepared.cache_clear()


@pytest.mark.usefixtures("bfloat16")
def test_a_row_that_overflows_is_computed_again_in_float32_and_counted(run, overflowing, tiny_tokens, capsys):
    store = open_features(run("exact"))
    exact = store.read("train")
    assert store.manifest["counts"]["float32_rows"] == {}
    overflowing(lambda reader: reader.dtype == torch.bfloat16)
    path = run("half", compute_dtype="bfloat16")
    half = open_features(path).read("train")
    splits = {name: np.asarray(split.inputs[:]) for name, split in open_tokens(tiny_tokens).splits.items()}
    distinct = np.unique(np.concatenate(list(splits.values())), axis=0)
    again = int((distinct.sum(axis=(1, 2)) == 5).sum())
    assert sum(open_features(path).manifest["counts"]["float32_rows"].values()) == again > 0
    assert f"{again} rows were not finite and were computed again in float32" in capsys.readouterr().out
    said = CliRunner().invoke(commands, ["inspect", str(path)]).output
    assert f"float32   {again} rows, which were not finite" in said
    broke = splits["train"].sum(axis=(1, 2)) == 5
    error = np.abs(half - exact).max(axis=(1, 2, 3))
    assert 0 < broke.sum() < len(broke)
    assert error[broke].max() < 1e-4 < 1e-3 < error[~broke].min()


def test_a_shard_that_nobody_computed_is_never_taken_for_done(run, monkeypatch):
    monkeypatch.setattr(engine, "run", lambda function, pieces, *_: ((piece, function(piece)) for piece in pieces[:-1]))
    monkeypatch.setattr(engine, "check_fidelity", lambda *_: {})
    with pytest.raises(ValueError, match=r"never finished: \[7\]"):
        run()


def test_a_row_that_is_not_finite_in_float32_either_stops_the_run_with_its_number(run, overflowing):
    overflowing(lambda reader: True)
    with pytest.raises(PermafrostError, match=r"row \d+, layer final: the hidden state is nan"):
        run(compute_dtype="bfloat16")


@pytest.mark.usefixtures("bfloat16")
def test_an_error_above_the_tolerance_stops_the_run_before_publishing(run, tmp_path):
    with pytest.raises(FidelityError, match=r"layer final: relative error .* is above 1.00e-06"):
        run(compute_dtype="bfloat16", tolerance=1e-6)
    assert not (tmp_path / "features" / "xor-tiny").exists()


@pytest.mark.usefixtures("bfloat16")
def test_fidelity_is_exact_in_float32_and_small_in_bfloat16(run):
    exact = open_features(run("a")).manifest["fidelity"]
    assert exact["relative_error"]["final"] < 1e-6
    half = open_features(run("b", compute_dtype="bfloat16")).manifest["fidelity"]
    assert 1e-4 < half["relative_error"]["final"] < 0.03


def test_a_layer_that_does_not_exist_or_is_named_twice_is_refused(run):
    with pytest.raises(PermafrostError, match=r"asks for layer 3, the backbone has 2"):
        run(layers=(3,))
    with pytest.raises(PermafrostError, match=r"names a layer twice: 1, 1"):
        run(layers=(1, 1))


def test_inputs_longer_than_the_positions_are_refused_before_anything_runs(tiny_bert, tmp_path):
    from tests.tiny import write_xor

    tokens = open_tokens(write_xor(tmp_path / "long", bits=3))
    found = backbone(tiny_bert)
    object.__setattr__(found.spec, "positions", 5)
    with pytest.raises(PermafrostError, match=r"long has 6 tokens, the backbone has 5 positions"):
        plan_extraction(tokens, found, cache_settings(), NAMES)


def test_work_may_be_done_by_other_processes_and_gives_the_same_bytes(run):
    assert everything(run("inline")) == everything(run("local", scheduler="local:2"))


@pytest.mark.parametrize("name", ["versions", "device", "kernels", "tokens", "weights", "code"])
def test_a_worker_that_would_give_other_bytes_is_refused(run, monkeypatch, name):
    def job(*arguments):
        made = shard_job(*arguments)
        return replace(made, alike={**made.alike, name: "another"})

    shard_job = engine.shard_job
    monkeypatch.setattr(engine, "shard_job", job)
    with pytest.raises(PermafrostError, match=rf"a worker has the {name} .* where the run began it is 'another'"):
        run()


def test_a_cpu_without_bfloat16_gives_the_values_of_float32_and_says_so(run, monkeypatch, capsys):
    exact = open_features(run("exact")).read("train")
    monkeypatch.setattr(device, "has_bfloat16", lambda _: False)
    capsys.readouterr()
    store = open_features(run("half", compute_dtype="bfloat16"))
    assert (store.read("train") == exact).all()
    assert store.manifest["kernels"] == "PyTorch's own products, in float32"
    assert "bf16" not in store.manifest["device"]
    assert "in float32: this CPU has no bfloat16 instructions, with which" in capsys.readouterr().out


def test_features_that_do_not_fit_the_disk_are_refused_before_anything_runs(run, monkeypatch):
    monkeypatch.setattr(engine.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 10, 0))
    with pytest.raises(PermafrostError, match=r"the features take 0.0 GB, .* has 0.0 GB free"):
        run()


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no second file system")
def test_features_that_do_not_fit_where_they_are_published_are_refused_before_anything_runs(
    tiny_tokens, tiny_bert, tmp_path, monkeypatch
):
    monkeypatch.setattr(
        engine.shutil,
        "disk_usage",
        lambda path: shutil._ntuple_diskusage(10, 10, 0 if Path(path).is_relative_to("/dev/shm") else 10**12),
    )
    plan = plan_extraction(open_tokens(tiny_tokens), backbone(tiny_bert), cache_settings(), NAMES)
    with TemporaryDirectory(dir="/dev/shm") as other:
        if Path(other).stat().st_dev == tmp_path.stat().st_dev:
            pytest.skip("there is no second file system")
        with pytest.raises(PermafrostError, match=rf"the features take 0.0 GB, {other}/features has 0.0 GB free"):
            extract(plan, Path(other) / "features" / "xor-tiny", Where(CPU, tmp_path / "work"))


def test_a_worker_in_another_folder_finds_a_backbone_by_a_relative_path(tiny_tokens, tiny_bert, tmp_path, monkeypatch):
    monkeypatch.chdir(tiny_bert.parent)
    relative = find_backbone(PathSource("path", tiny_bert.name))
    plan = plan_extraction(open_tokens(tiny_tokens), relative, cache_settings(), NAMES)
    job = engine.shard_job(plan, tmp_path, Where(CPU, tmp_path), {}, "key")
    monkeypatch.chdir(tmp_path)
    assert find_backbone(job.backbone).weights == relative.weights
    drawn = RandomSource("random", PathSource("path", "~/x"), seed=1)
    assert with_whole_paths(drawn).like == PathSource("path", str(Path.home() / "x"))
    assert with_whole_paths(PackageSource("package", "p", "f")) == PackageSource("package", "p", "f")


def test_an_augmented_task_is_refused_with_the_reason(run, tiny_tokens, tiny_bert):
    tokens = replace(open_tokens(tiny_tokens), augment="crop_flip_rotate")
    with pytest.raises(PermafrostError, match=r"augmented \(crop_flip_rotate\): no image is seen twice"):
        plan_extraction(tokens, backbone(tiny_bert), cache_settings(), NAMES)


def test_an_empty_split_is_a_valid_empty_array(tiny_bert, tmp_path):
    path = write_task(tmp_path / "few", Split.of(np.eye(3, dtype=np.uint8)[:, :, None], np.zeros((3, 1), np.uint8)))
    plan = plan_extraction(open_tokens(path), backbone(tiny_bert), cache_settings(), NAMES)
    extract(plan, tmp_path / "out", Where(CPU, tmp_path / "work"))
    store = open_features(tmp_path / "out")
    assert store.read("test").shape == (0, 1, 1, 32)
    assert store.read("train").shape == (3, 1, 1, 32)


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 16, 17])
def test_every_row_is_written_once_whatever_the_number(tiny_bert, tmp_path, rows):
    values = np.arange(rows, dtype=np.uint8)
    inputs = np.stack([values % 16, values // 16], axis=1)[:, :, None]
    path = write_task(tmp_path / "n", Split.of(inputs, values[:, None] % 2))
    plan = plan_extraction(
        open_tokens(path), backbone(tiny_bert), cache_settings(shard_bytes=1024, chunk_bytes=512), NAMES
    )
    assert plan.layout.shard_rows == min(8, 4 * -(-rows // 4)) or rows < 4
    extract(plan, tmp_path / "out", Where(CPU, tmp_path / "work"))
    found = open_features(tmp_path / "out").read("train")[:, 0, 0]
    assert len(np.unique(found, axis=0)) == rows
    assert (np.abs(found).sum(axis=1) > 0).all()


@pytest.fixture
def out_of_memory(monkeypatch):
    """A device with memory for a few rows together only; gives how many tokens each batch had that was tried."""
    tried: list[int] = []
    read = Reader.read

    def limited(self, inputs, lengths, answers):
        tried.append(inputs.shape[0] * inputs.shape[1])
        if tried[-1] > 24:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return read(self, inputs, lengths, answers)

    monkeypatch.setattr(Reader, "read", limited)
    return tried


def test_out_of_memory_names_half_the_batch_and_never_halves_it_in_silence(run, out_of_memory):
    wanted = r"cpu has no memory for a batch of 8 × 6 tokens \(cache.batch_tokens: 48\)\s+to mend: .*batch_tokens: 24 "
    with pytest.raises(PermafrostError, match=wanted):
        run()
    assert out_of_memory == [48]
    open_features(run(batch_tokens=24))


def test_out_of_memory_with_a_single_row_says_that_smaller_batches_do_not_help(run, monkeypatch):
    monkeypatch.setattr(Reader, "read", lambda *_: (_ for _ in ()).throw(torch.OutOfMemoryError("full")))
    with pytest.raises(PermafrostError, match=r"batch of 1 × 6 tokens[\s\S]*one input alone is too long"):
        run(batch_tokens=1)


def test_a_failure_in_the_seventh_batch_costs_only_the_shard_under_way(run, monkeypatch):
    """Two batches a shard: the seventh is the fourth shard's first; the rerun computes that shard and what follows."""
    whole = everything(run("whole", batch_tokens=24))
    begin, batches, computed = shard.begin_rows, [], []

    def fails(*args):
        batches.append(args)
        if len(batches) == 7:
            raise RuntimeError("the driver went away")
        return begin(*args)

    monkeypatch.setattr(shard, "begin_rows", fails)
    with pytest.raises(RuntimeError, match="the driver went away"):
        run("failed", batch_tokens=24)
    compute = engine.compute_shard
    monkeypatch.setattr(engine, "compute_shard", lambda *args: (computed.append(args[1]), compute(*args))[1])
    assert everything(run("failed", batch_tokens=24)) == whole
    assert computed == [3, 4, 5, 6, 7]


@pytest.mark.parametrize("order", [[7, 6, 5, 4, 3, 2, 1, 0], [3, 0, 6, 1, 7, 5, 2, 4]])
def test_shards_in_another_order_give_the_same_bytes(run, monkeypatch, order):
    whole = everything(run("whole"))
    scheduled = engine.run
    monkeypatch.setattr(engine, "run", lambda function, pieces, *rest: scheduled(function, order, *rest))
    assert everything(run("other")) == whole


def killed_in_a_shard(job, number):
    """`compute_shard`, but the first process that comes to write shard 3 is killed with half of it on disk."""
    import os
    import signal

    write, flag = shard.write_shard, job.store.parent / "died"

    def dies(path, layout, piece, values):
        if piece == 3 and not flag.exists():
            flag.touch()
            target = path / layout.file_of(piece)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.with_name("0.half.partial").write_bytes(b"half")
            target.write_bytes(values.tobytes()[: values.nbytes // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        write(path, layout, piece, values)

    shard.write_shard = dies
    try:
        return COMPUTE(job, number)
    finally:
        shard.write_shard = write


COMPUTE = engine.compute_shard


@pytest.mark.slow
def test_a_worker_killed_inside_a_shard_costs_no_byte(run, monkeypatch, tmp_path):
    whole = everything(run("inline"))
    monkeypatch.setattr(engine, "compute_shard", killed_in_a_shard)
    path = run("killed", scheduler="local:2")
    assert next((tmp_path / "work" / "cache" / "killed").rglob("died")), "no worker was killed"
    assert everything(path) == whole
