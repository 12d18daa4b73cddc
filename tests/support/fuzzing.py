"""Readers of files from strangers, each with files that it takes and a strategy that damages them.

`tests/fuzzed/<reader>/` keeps files that a reader once answered wrongly; every run of the tests reads them again.
`tests/fuzzed/seeds/` has files that are valid.
"""

from __future__ import annotations

import io
import json
import tempfile
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from pt2hub.archive import Archive, read_safetensors_header
from pt2hub.archive.code import check_code, unpack_code
from pt2hub.archive.exported_programs import check_program
from pt2hub.client.artifacts.puller import _document
from pt2hub.domain.artifacts import ArtifactConfig, Descriptor, Manifest
from pt2hub.domain.codec import encode
from pt2hub.domain.digests import digest_bytes
from pt2hub.errors import Pt2hubError
from pt2hub_workers.inside.operations.files import CALL_NAME
from pt2hub_workers.performance.trace_profiles import make_profile
from pt2hub_workers.performance.traces import read_trace
from support.artifacts import a_config, a_constant
from support.packages import safetensors
from support.zips import RawMember, raw_zip

KEPT = Path(__file__).parents[1] / "fuzzed"
MAX_SECONDS = 5.0
"""For one file of some kilobytes; even a busy machine reads it in a thousandth."""
MAX_BYTES = 256 << 20
_DEFLATED = 8


@dataclass(frozen=True)
class Reader:
    """A reader of files.

    Attributes:
        read: Reads a file's bytes; may raise errors of pt2hub and nothing else.
        files: Strategy of files, most of them nearly valid.
    """

    read: Callable[[bytes], object]
    files: st.SearchStrategy[bytes]


def read_within_bounds(reader: Reader, data: bytes) -> None:
    """Has a file read; an error that is not pt2hub's, too much time or too much memory is raised."""
    tracemalloc.start()
    began = time.monotonic()
    try:
        reader.read(data)
    except Pt2hubError as error:
        error.as_dict()
    finally:
        taken, (_, most) = time.monotonic() - began, tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert taken < MAX_SECONDS, f"{taken:.1f} s for {len(data)} bytes"
    assert most < MAX_BYTES, f"{most >> 20} MiB for {len(data)} bytes"


def keep(name: str, data: bytes) -> Path:
    """Write a file that a reader answered wrongly to where every run of the tests finds it."""
    path = KEPT / name / digest_bytes(data).removeprefix("sha256:")[:16]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def kept() -> list[Path]:
    """Files that readers once answered wrongly."""
    return sorted(path for path in KEPT.glob("*/*") if path.parent.name in READERS)


# -- reading ----------------------------------------------------------------------------------------------


def _with_file(read: Callable[[Path], object]) -> Callable[[bytes], object]:
    def from_bytes(data: bytes) -> object:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "file")
            path.write_bytes(data)
            return read(path)

    return from_bytes


def _read_archive(data: bytes) -> None:
    archive = Archive(io.BytesIO(data))
    for entry in archive.entries:
        for _ in archive.chunks(entry):
            pass


def _read_code(path: Path) -> None:
    check_code(path)
    (path.parent / "code").mkdir()
    unpack_code(path, path.parent / "code")


def _read_manifest(path: Path) -> None:
    assert _document(Manifest, path, "manifest").as_bytes()


def _read_config(path: Path) -> None:
    encode(_document(ArtifactConfig, path, "config"))


def _read_trace(path: Path) -> None:
    trace = read_trace(path, "cpu")
    trace.pack()
    encode(make_profile(trace))


# -- writing nearly valid files ---------------------------------------------------------------------------

_NUMBERS = st.sampled_from([0, 1, -1, 2**31, 2**32 - 1, 2**53, 2**63, 2**64, 10**400, 1e308, -0.0, 1e-320])
_NAMES = st.text(max_size=12) | st.sampled_from(["../x", "/x", "a\0b", "\ud800", "__proto__", "a" * 5000, ""])
_VALUES = st.recursive(
    st.none() | st.booleans() | _NUMBERS | st.integers() | st.floats() | _NAMES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_NAMES, inner, max_size=4),
    max_leaves=6,
)


@st.composite
def damaged(draw: st.DrawFn, valid: st.SearchStrategy[bytes]) -> bytes:
    """Bytes with some of them changed, removed, repeated or put in."""
    data = bytearray(draw(valid))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        until = min(len(data), at + draw(st.integers(0, 40)))
        change = draw(st.sampled_from(["put", "remove", "repeat", "overwrite"]))
        given = draw(st.binary(max_size=12) | st.sampled_from([b"PK\1\2", b"PK\5\6", b"\xff" * 8, b"\0" * 8]))
        if change == "put":
            data[at:at] = given
        elif change == "remove":
            del data[at:until]
        elif change == "repeat":
            data[at:at] = data[at:until]
        else:
            data[at : at + len(given)] = given
    return bytes(data)


@st.composite
def changed(draw: st.DrawFn, valid: Any) -> Any:
    """A JSON value with some of its parts replaced, removed or renamed."""
    value = json.loads(json.dumps(valid))
    for _ in range(draw(st.integers(1, 3))):
        value = _replace(draw, value)
    return value


def _replace(draw: st.DrawFn, value: Any) -> Any:
    if not isinstance(value, dict | list) or not value or draw(st.integers(0, 5)) == 0:
        return draw(_VALUES)
    key = draw(st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value))))
    if draw(st.integers(0, 7)) == 0:
        return {**value, draw(_NAMES): value[key]} if isinstance(value, dict) else [*value, value[key]]
    if draw(st.integers(0, 7)) == 0:
        del value[key]
    else:
        value[key] = _replace(draw, value[key])
    return value


def _as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _documents(valid: Any) -> st.SearchStrategy[bytes]:
    return changed(valid).map(_as_json) | damaged(st.just(_as_json(valid)))


def _headed(header: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header + bytes(24)


_FIELDS = {
    "local": st.dictionaries(
        st.sampled_from(["size", "compressed", "crc", "method", "flags"]), st.integers(0, 0xFFFF), max_size=2
    ),
    "central": st.dictionaries(
        st.sampled_from(["size", "compressed", "crc", "method", "flags", "external", "disk"]),
        st.integers(0, 0xFFFF),
        max_size=2,
    ),
}


def _members(names: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    member = st.builds(
        RawMember,
        name=names,
        data=st.binary(max_size=60) | st.just(bytes(1 << 16)),
        method=st.sampled_from([0, _DEFLATED]),
        flags=st.sampled_from([0, 0x800, 0x808]),
        local_extra=st.sampled_from([b"", b"FB\4\0ZZZZ"]),
        **_FIELDS,
    )
    return st.lists(member, max_size=4).map(lambda members: raw_zip(*members))


_ZIP_NAMES = st.sampled_from(
    [b"model/a", b"model/b", b"model/", b"a/../b", b"/a", b"model/\xff", b"A", b"a", b""]
)
_SEED = KEPT / "seeds" / "program.pt2"
"""What `split_program` makes of a model with one weight and a dimension of unknown size."""


@st.composite
def _programs(draw: st.DrawFn) -> bytes:
    """A program with one of its documents changed, or a member of another content."""
    with zipfile.ZipFile(_SEED) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    name = draw(st.sampled_from(sorted(members)))
    if name.endswith(".json"):
        members[name] = _as_json(draw(changed(json.loads(members[name]))))
    else:
        members[name] = draw(st.binary(max_size=20))
    return raw_zip(*(RawMember(name.encode(), data) for name, data in members.items()))


_DESCRIPTOR = Descriptor("application/x", digest_bytes(b"x"), 1)
_MANIFEST = encode(
    Manifest(artifactType="application/x", config=_DESCRIPTOR, layers=(_DESCRIPTOR,), annotations={"a": "b"})
)
_CONFIG = encode(a_config(a_constant("w", (2, 3))))
_CALLS = [
    {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 1,
        "tid": 1,
        "ts": at,
        "dur": 9.5,
        "args": {"External id": 3},
    }
    for cat, name, at in (
        ("user_annotation", CALL_NAME, 100),
        ("cpu_op", "aten::mm", 101),
        ("kernel", "triton_poi", 102),
    )
]
_TRACE = {"traceEvents": [*_CALLS, {"ph": "s", "cat": "ac2g", "id": 3, "pid": 1, "tid": 1, "ts": 101}]}
_HEADER = {
    "__metadata__": {"format": "pt"},
    "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
}
READERS = {
    "archive": Reader(_read_archive, damaged(_members(_ZIP_NAMES))),
    "code": Reader(_with_file(_read_code), damaged(_members(_ZIP_NAMES))),
    "program": Reader(_with_file(check_program), _programs() | damaged(st.just(_SEED.read_bytes()))),
    "safetensors": Reader(
        read_safetensors_header,
        changed(_HEADER).map(lambda header: _headed(_as_json(header)))
        | damaged(st.just(safetensors({"a": ("F32", (2, 3), bytes(24))}))),
    ),
    "manifest": Reader(_with_file(_read_manifest), _documents(_MANIFEST)),
    "config": Reader(_with_file(_read_config), _documents(_CONFIG)),
    "trace": Reader(_with_file(_read_trace), _documents(_TRACE)),
}
