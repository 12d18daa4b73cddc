"""The strict reader of safetensors headers."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.archive import TensorEntry, read_safetensors_header
from pt2hub.errors import CorruptArchive
from support.packages import safetensors

if TYPE_CHECKING:
    from pathlib import Path


def file_of(header: bytes | dict[str, Any], data: bytes = b"", *, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(begin: int, end: int, *, dtype: str = "U8", shape: Any = None) -> dict[str, Any]:
    return {
        "dtype": dtype,
        "shape": [end - begin] if shape is None else shape,
        "data_offsets": [begin, end],
    }


def test_tensors_are_listed_with_their_place_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    path.write_bytes(safetensors({"b": ("BF16", (2, 3), bytes(12)), "a": ("F32", (), bytes(4))}))
    start = path.stat().st_size - 16
    assert read_safetensors_header(path) == {
        "b": TensorEntry("bfloat16", (2, 3), start, start + 12),
        "a": TensorEntry("float32", (), start + 12, start + 16),
    }


def test_what_the_reference_implementation_writes_is_read() -> None:
    numpy = pytest.importorskip("numpy")
    save = pytest.importorskip("safetensors.numpy").save
    tensors = {
        "layer.weight": numpy.arange(6, dtype="float32").reshape(2, 3),
        "empty": numpy.zeros((0, 4), dtype="int64"),
        "flag": numpy.array(True),  # an array of one boolean
    }
    data = save(tensors, metadata={"format": "pt"})
    entries = read_safetensors_header(data)
    assert {
        name: (item.dtype, item.shape, data[item.begin : item.end]) for name, item in entries.items()
    } == {name: (str(value.dtype), value.shape, value.tobytes()) for name, value in tensors.items()}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "longer than the file"),
        (b"\1\0\0\0", "longer than the file"),
        (file_of({}, length=1 << 40), "longer than the file"),
        (file_of({}, length=3), "longer than the file"),
        (file_of(b"[]"), "not a JSON object"),
        (file_of(b" {}"), "not a JSON object"),
        (file_of(b"{"), "not valid JSON"),
        (file_of(b"{}x"), "not valid JSON"),
        (file_of(b'{"a":NaN}'), "not valid JSON"),
        (file_of(b'{"a":"\xff"}'), "not valid JSON"),
        (file_of(b'{"a":' + b"[" * 100_000), "not valid JSON"),
        (file_of(b'{"a":1,"a":2}'), "same key twice"),
        (file_of(b'{"a":{"dtype":"U8","dtype":"I8"}}'), "same key twice"),
        (file_of({"__metadata__": {"a": 1}}), "metadata"),
        (file_of({"a": 1}), "exactly dtype"),
        (file_of({"a": {**tensor(0, 1), "more": 1}}, b"x"), "exactly dtype"),
        (file_of({"a": tensor(0, 1, dtype="Q4")}, b"x"), "unknown dtype"),
        (file_of({"a": tensor(0, 1, dtype=[])}, b"x"), "unknown dtype"),  # type: ignore[arg-type]  # wrong on purpose
        (file_of({"a": tensor(0, 1, shape=[1.0])}, b"x"), "numbers"),
        (file_of({"a": tensor(0, 1, shape=[True])}, b"x"), "numbers"),
        (file_of({"a": tensor(0, 1, shape=[-1])}, b"x"), "numbers"),
        (file_of({"a": tensor(0, 1, shape=[1] * 65)}, b"x"), "begin and end"),
        (file_of({"a": tensor(1, 0, shape=[])}, b"x"), "do not fit"),
        (file_of({"a": tensor(0, 4, shape=[2])}, bytes(4)), "do not fit"),
        (file_of({"a": tensor(0, 4)}, bytes(3)), "do not fill"),
        (file_of({"a": tensor(0, 4)}, bytes(5)), "do not fill"),
        (file_of({"a": tensor(0, 4), "b": tensor(2, 6)}, bytes(6)), "overlap"),
        (file_of({"a": tensor(0, 4), "b": tensor(5, 6)}, bytes(6)), "gap"),
        (file_of({"a": tensor(1, 6)}, bytes(6)), "gap"),
    ],
)
def test_a_malformed_file_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptArchive, match=reason):
        read_safetensors_header(data)
