from __future__ import annotations

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pipeline.features import open_features
from pipeline.features.__main__ import main
from pipeline.features.dtypes import ValueRangeError, decode, encode, from_bfloat16, to_bfloat16
from pipeline.features.layout import MAX_SHARDS, plan_layout
from pipeline.features.verify import check
from pipeline.features.write import create_store, write_shard
from pipeline.identity import StaleArtifact, file_digests, write_manifest

ROWS, READOUT, LAYERS, WIDTH = 11, 2, ("1", "final"), 8


def make_store(path, dtype="float32"):
    """A store of 11 rows in shards of 4 whose values are known; train repeats row 3, test is empty."""
    row_bytes = READOUT * len(LAYERS) * WIDTH * (4 if dtype == "float32" else 2)
    layout = plan_layout(ROWS, READOUT, LAYERS, WIDTH, dtype, shard_bytes=4 * row_bytes, chunk_bytes=2 * row_bytes)
    values = np.random.default_rng(0).standard_normal(layout.shape).astype(np.float32)
    rows = {"train": np.array([0, 3, 3, 10]), "validation": np.arange(5, 10), "test": np.array([], dtype=np.int64)}
    splits = {name: {"row": row, "labels": (row[:, None] % 3).astype(np.uint8)} for name, row in rows.items()}
    create_store(path, layout, {"layers": list(LAYERS), "dtype": dtype, "classes": 3}, splits)
    for shard in range(layout.shards):
        held = np.array(layout.rows_of(shard))
        write_shard(path, layout, shard, encode(values[held], dtype, LAYERS, held))
    identity = {"schema": 1, "task": "t", "backbone": "b"}
    extra = {
        "layout": {"shard_rows": layout.shard_rows, "shards": 3},
        "device": "cpu",
        "fidelity": {"relative_error": {"final": 0}},
    }
    counts = {"examples": {name: len(row) for name, row in rows.items()}, "unique": ROWS}
    write_manifest(path, identity, file_digests(path), counts=counts, **extra)
    return values


def test_reading_gives_what_was_written_for_any_rows_and_layers(tmp_path):
    values = make_store(tmp_path / "s")
    store = open_features(tmp_path / "s")
    np.testing.assert_array_equal(store.read("train"), values[[0, 3, 3, 10]])
    np.testing.assert_array_equal(store.read("validation"), values[5:10])
    np.testing.assert_array_equal(store.read("train", rows=[3, 0]), values[[10, 0]])
    np.testing.assert_array_equal(store.read("train", rows=slice(1, 3)), values[[3, 3]])
    np.testing.assert_array_equal(store.read("train", layers=["final"]), values[[0, 3, 3, 10]][:, :, 1:])
    np.testing.assert_array_equal(store.read("train", layers=["final", "1"])[:, :, 1], values[[0, 3, 3, 10]][:, :, 0])
    assert store.read("test").shape == (0, READOUT, 2, WIDTH)
    assert store.labels("train").tolist() == [[0], [0], [0], [1]]


def test_dask_gives_the_same_numbers_a_block_a_shard(tmp_path):
    values = make_store(tmp_path / "s", "bfloat16")
    store = open_features(tmp_path / "s")
    for split in ("train", "validation"):
        np.testing.assert_array_equal(store.dask(split).compute(), store.read(split))
    assert store.dask("train").shape == (4, READOUT, 2, WIDTH)
    assert store.dask("validation").chunks[0] == (3, 2), "rows 5 to 9, cut where shards of four end"
    np.testing.assert_allclose(store.dask("validation").compute(), values[5:10], rtol=1e-2)


def test_an_unknown_layer_or_split_is_named(tmp_path):
    make_store(tmp_path / "s")
    store = open_features(tmp_path / "s")
    with pytest.raises(KeyError, match=r"no layer '7'; it holds 1, final"):
        store.read("train", layers=["7"])
    with pytest.raises(KeyError):
        store.read("holdout")


@given(hnp.arrays(np.float32, 50, elements=st.floats(-(2.0**126), 2.0**126, width=32)))
def test_bfloat16_rounds_as_torch_does(values):
    wanted = torch.from_numpy(values).bfloat16()
    stored = to_bfloat16(values)
    assert (torch.from_numpy(stored).view(torch.bfloat16) == wanted).all()
    np.testing.assert_array_equal(from_bfloat16(stored), wanted.float().numpy())


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_values_that_the_dtype_holds_come_back_exactly(dtype):
    exact = torch.randn(3, 1, 1, 5).to(getattr(torch, dtype)).float().numpy()
    np.testing.assert_array_equal(decode(encode(exact, dtype, ["final"], np.arange(3)), dtype), exact)


def test_a_value_that_the_dtype_cannot_hold_is_refused_and_never_clipped():
    values = np.zeros((3, 1, 2, 5), np.float32)
    values[1, 0, 1, 2] = 70000
    assert np.isfinite(encode(values, "bfloat16", ["0", "final"], np.arange(3))).all()
    with pytest.raises(ValueRangeError, match=r"row 101, layer final: 70000 does not fit float16[\s\S]*bfloat16"):
        encode(values, "float16", ["0", "final"], np.array([100, 101, 102]))
    values[1, 0, 1, 2] = np.nan
    with pytest.raises(ValueRangeError, match=r"row 1, layer final: the hidden state is nan"):
        encode(values, "bfloat16", ["0", "final"], np.arange(3))


@given(
    rows=st.integers(0, 5000),
    width=st.integers(1, 64),
    shard_bytes=st.integers(1, 20_000),
    chunk_bytes=st.integers(1, 20_000),
)
def test_shards_cover_every_row_once_and_are_whole_chunks(rows, width, shard_bytes, chunk_bytes):
    layout = plan_layout(rows, 1, ("final",), width, "float32", shard_bytes, chunk_bytes)
    covered = [row for shard in range(layout.shards) for row in layout.rows_of(shard)]
    assert covered == list(range(rows))
    assert layout.shard_rows % layout.chunk_rows == 0
    assert layout.shards <= MAX_SHARDS
    assert layout.chunk_rows * width * 4 <= max(chunk_bytes, width * 4)


def test_a_shard_of_the_wrong_size_is_refused(tmp_path):
    layout = plan_layout(10, 1, ("final",), 4, "float32", 64, 64)
    for wrong in (np.zeros((4, 1, 1, 4), np.float32), np.zeros((2, 1, 1, 4), np.float64)):
        with pytest.raises(ValueError, match=r"shard 2 has shape \(2, 1, 1, 4\) in float32"):
            write_shard(tmp_path, layout, 2, wrong)


def shard_file(path, shard):
    return path / f"features/c/{shard}/0/0/0"


def test_verify_names_what_is_damaged_missing_or_foreign(tmp_path):
    make_store(tmp_path / "s")
    store = open_features(tmp_path / "s")
    assert not check(store)
    content = bytearray(shard_file(store.path, 1).read_bytes())
    content[100] ^= 1
    shard_file(store.path, 1).write_bytes(content)
    shard_file(store.path, 2).unlink()
    (store.path / "stray").touch()
    assert check(store).lines(store) == [
        "missing: features/c/2/0/0/0 (shard 2, rows 8 to 10)",
        "damaged: features/c/1/0/0/0 (shard 1, rows 4 to 7)",
        "foreign: stray",
    ]
    result = CliRunner().invoke(main, ["verify", str(store.path)])
    assert result.exit_code == 1
    assert "shard 1, rows 4 to 7" in result.output


def test_one_flipped_bit_is_never_read_as_a_number(tmp_path):
    make_store(tmp_path / "s")
    content = bytearray(shard_file(tmp_path / "s", 1).read_bytes())
    content[5] ^= 4
    shard_file(tmp_path / "s", 1).write_bytes(content)
    with pytest.raises(StaleArtifact, match=r"is damaged[\s\S]*verify"):
        open_features(tmp_path / "s").read("validation")


@pytest.mark.parametrize("file", ["features/c/1/0/0/0", "train/row/c/0", "validation/labels/c/0/0"])
@pytest.mark.parametrize("empty", [False, True])
def test_a_file_that_is_missing_or_empty_is_never_read_as_zeros(tmp_path, file, empty):
    make_store(tmp_path / "s")
    (tmp_path / "s" / file).unlink()
    if empty:
        (tmp_path / "s" / file).touch()
    with pytest.raises(StaleArtifact, match=rf"{file} missing or empty[\s\S]*repair"):
        open_features(tmp_path / "s")
    assert CliRunner().invoke(main, ["verify", str(tmp_path / "s")]).exit_code == 1


@pytest.mark.parametrize("array", ["row", "labels"])
def test_a_flipped_bit_in_a_small_array_is_said_as_damage(tmp_path, array):
    make_store(tmp_path / "s")
    (file,) = (path for path in (tmp_path / "s/train" / array / "c").rglob("*") if path.is_file())
    content = bytearray(file.read_bytes())
    content[0] ^= 4
    file.write_bytes(content)
    store = open_features(tmp_path / "s")
    with pytest.raises(StaleArtifact, match=r"is damaged[\s\S]*verify"):
        store.read("train") if array == "row" else store.labels("train")


def test_a_shard_of_zeros_is_a_file_like_any_other(tmp_path):
    layout = plan_layout(4, 1, ("final",), 4, "float32", 32, 16)
    create_store(tmp_path / "s", layout, {"layers": ["final"], "dtype": "float32", "classes": 2}, {})
    write_shard(tmp_path / "s", layout, 0, np.zeros((2, 1, 1, 4), np.float32))
    assert shard_file(tmp_path / "s", 0).stat().st_size > 2 * 16


def test_inspect_says_what_is_there(tmp_path):
    make_store(tmp_path / "s", "bfloat16")
    result = CliRunner().invoke(main, ["inspect", str(tmp_path / "s")])
    assert result.exit_code == 0
    assert "11 rows × 2 readout × 2 layers × 8 wide, bfloat16" in result.output


def test_a_store_of_another_identity_or_schema_is_refused(tmp_path):
    make_store(tmp_path / "s")
    with pytest.raises(StaleArtifact, match=r'task: found "t", wanted "u"[\s\S]*dvc repro cache@s'):
        open_features(tmp_path / "s", expect={"task": "u"})
    write_manifest(tmp_path / "s", {"schema": 0}, {})
    with pytest.raises(StaleArtifact, match=r"schema: found 0, wanted 1"):
        open_features(tmp_path / "s")


def test_an_unfinished_store_is_refused(tmp_path):
    make_store(tmp_path / "s")
    (tmp_path / "s" / "manifest.json").unlink()
    with pytest.raises(StaleArtifact, match=r"never finished"):
        open_features(tmp_path / "s")


def test_reading_one_row_reads_one_chunk_and_the_index_of_its_shard(tmp_path, monkeypatch):
    """Counted in bytes, not in time: the store's own files, opened through zarr."""
    from zarr.storage import LocalStore

    values = make_store(tmp_path / "s")
    store = open_features(tmp_path / "s")
    read, got = [], LocalStore.get

    async def counted(self, key, *args, **kwargs):
        buffer = await got(self, key, *args, **kwargs)
        if key.startswith("features/c/"):
            read.append((key, len(buffer)))
        return buffer

    monkeypatch.setattr(LocalStore, "get", counted)
    np.testing.assert_array_equal(store.read("validation", rows=[3]), values[8:9])
    chunk = 2 * READOUT * len(LAYERS) * WIDTH * 4 + 4  # two rows and their checksum
    index = 2 * 16 + 4  # offset and length of each of the shard's chunks, and a checksum
    assert sorted(size for _, size in read) == [index, chunk]
    assert {key for key, _ in read} == {"features/c/2/0/0/0"}
