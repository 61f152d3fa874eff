import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.tasks.safe_pickle import RefusedPickle, plain_data
from tests.tasks.files import RunsCode

PLAIN: list[Any] = [
    {"data": [1, 2.5, None, True, "é", b"\x00\xff"], "nested": ({"a"}, frozenset({1}))},
    12312,
    {"scalar": np.float64(0.5), "other": np.int16(-3)},
]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("value", PLAIN)
def test_plain_data_of_every_protocol_is_read(value: Any, protocol: int) -> None:
    found = plain_data(pickle.dumps(value, protocol=protocol))
    assert repr(found) == repr(value)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_arrays_come_back_with_shape_values_and_dtype_but_for_its_byte_order(protocol: int) -> None:
    for dtype in ("u1", "?", ">f8", "<i2", "S3", "U2", "c8"):
        values = np.arange(6).reshape(2, 3).astype(dtype)
        for array in (values, np.asfortranarray(values), values[:0], values[1, 1].reshape(())):
            found = plain_data(pickle.dumps(array, protocol=protocol))
            assert found.dtype.newbyteorder("=") == array.dtype.newbyteorder("=")
            np.testing.assert_array_equal(found, array)


def test_arrays_that_python_2_pickled_under_numpys_old_name_are_read() -> None:
    content = pickle.dumps(np.arange(4, dtype=np.uint8), protocol=2)
    old = content.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    np.testing.assert_array_equal(plain_data(old), np.arange(4))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_tries_to_run_code_does_not_run(tmp_path: Path, protocol: int) -> None:
    trap = tmp_path / "ran"
    content = pickle.dumps({"labels": [RunsCode(trap)]}, protocol=protocol)
    with pytest.raises(RefusedPickle, match="it names "):
        plain_data(content)
    assert not trap.exists()
    pickle.loads(content)  # noqa: S301 - shows that the trap is a real one
    assert trap.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"cos\nsystem\n(S'true'\ntR.",
        b"c__builtin__\neval\n(S'1+1'\ntR.",
        b"cbuiltins\ngetattr\n(c_codecs\nencode\nS'__self__'\ntR.",
        b"c_codecs\nencode\n(S'x'\nS'zlib_codec'\ntR.",
        b"c_codecs\nencode\n.",
        pickle.dumps(OrderedDict(a=1)),
        pickle.dumps(np.array([{}, []], dtype=object)),
        pickle.dumps(np.zeros(2, [("a", "O"), ("b", "u1")])),
        b"cnumpy\nndarray\n((K\x01tS'O'\nS'AAAAAAAA'\ntR.",  # bytes that would be taken for a pointer
        b"cnumpy\ndtype\n(S'O8'\nI00\nI01\ntR.",
        pickle.dumps(np.arange(4, dtype=np.uint8), protocol=2).replace(b"K\x04\x85", b"K\x40\x85"),  # a shape that lies
        pickle.dumps(Path("a")),
    ],
)
def test_anything_but_plain_data_is_refused(content: bytes) -> None:
    with pytest.raises(RefusedPickle):
        plain_data(content)


def test_damage_is_refused_and_a_list_that_holds_itself_ends() -> None:
    whole = pickle.dumps({"a": [1, 2, 3]})
    with pytest.raises(RefusedPickle, match="not a readable pickle"):
        plain_data(whole[:-4])
    itself: list[Any] = []
    itself.append(itself)
    assert len(plain_data(pickle.dumps(itself))) == 1
