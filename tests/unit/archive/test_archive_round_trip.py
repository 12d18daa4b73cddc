"""Writing, splitting and assembling archives."""

from __future__ import annotations

import io
import math
import struct
import zipfile
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pt2hub.archive import (
    Archive,
    assemble,
    blob_chunks,
    constants_layout,
    listing,
    read_member,
    split,
    write_single_file,
    write_zip,
)
from pt2hub.archive.zip.encoder import ZipEncoder
from pt2hub.domain.artifacts import Member
from pt2hub.domain.digests import digest_bytes, digest_file
from pt2hub.errors import CorruptArchive, LayoutUnproven, WeightsMismatch
from support.packages import BLOB, layout, package, safetensors
from support.zips import RawMember, raw_zip

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NAMES = st.lists(
    st.text(
        st.characters(min_codepoint=48, max_codepoint=0x2FF, categories=["L", "N"]), min_size=1, max_size=9
    ),
    min_size=1,
    max_size=4,
).map("/".join)
MEMBERS = st.dictionaries(NAMES, st.binary(max_size=500), max_size=8).filter(
    lambda members: not any(other.startswith(name + "/") for name in members for other in members)
)


def encoded(members: Mapping[str, bytes], *, streamed: bool = False, zip64_from: int = 0xFFFF_FFFF) -> bytes:
    encoder = ZipEncoder(zip64_from=zip64_from)
    pieces: list[bytes] = []
    for name, data in members.items():
        pieces += encoder.member(name, len(data), [data]) if streamed else encoder.whole(name, data)
    return b"".join([*pieces, *encoder.end()])


@settings(deadline=None)
@given(MEMBERS, st.booleans(), st.sampled_from([0, 1, 100, 0xFFFF_FFFF]))
def test_what_is_written_is_read_back_by_us_and_by_zipfile(
    members: dict[str, bytes], streamed: bool, zip64_from: int
) -> None:
    data = encoded(members, streamed=streamed, zip64_from=zip64_from)
    archive = Archive(io.BytesIO(data))
    assert {entry.name: archive.read(entry.name) for entry in archive.entries} == members
    with zipfile.ZipFile(io.BytesIO(data)) as expected:
        assert expected.testzip() is None
        assert {name: expected.read(name) for name in expected.namelist()} == members


def test_an_archive_has_the_same_bytes_on_every_machine() -> None:
    members = {"model/archive_format": b"pt2", "model/größe": b"\0" * 9}
    # Digests of artifacts rest on this: a change here is a change of every artifact to come.
    expected = "sha256:0e2c5c939a79aefcd7c53e0682e39759ade7f57ced46bbdd64f318725a5ae83c"
    assert digest_bytes(encoded(members)) == expected


@pytest.mark.parametrize("name", ["../a", "/a", "a\\b", "a//b", ""])
def test_the_writer_refuses_a_name_that_the_reader_would_refuse(tmp_path: Path, name: str) -> None:
    with pytest.raises(CorruptArchive, match="name"):
        write_zip(tmp_path / "out.zip", [("model/a", b""), (name, b"")])
    assert not list(tmp_path.iterdir())


def test_the_writer_refuses_a_name_twice(tmp_path: Path) -> None:
    with pytest.raises(CorruptArchive, match="same name"):
        write_zip(tmp_path / "out.zip", [("a", b""), ("a", b"")])


@pytest.fixture
def compiled(tmp_path: Path) -> Path:
    path = tmp_path / "block.pt2"
    path.write_bytes(package(root="block"))
    return path


def test_split_takes_weights_and_sources_out_and_renames_the_root(compiled: Path, tmp_path: Path) -> None:
    result = split(compiled, tmp_path / "code.zip", extra={"data/literals.safetensors": b"literals"})
    assert [member.name for member in listing(result.code)] == [
        "model/.data/serialization_id",
        "model/archive_format",
        "model/data/aotinductor/model/m.wrapper.cpp",
        "model/data/aotinductor/model/m.wrapper.so",
        "model/data/aotinductor/model/m.wrapper_metadata.json",
        "model/data/literals.safetensors",
    ]
    assert read_member(result.code, "model/data/aotinductor/model/m.wrapper.cpp") == b""
    assert result.sources == {
        "model/data/aotinductor/model/m.wrapper.cpp": b"// /build/path",
        "model/data/aotinductor/model/m.kernel.cpp": b"// kernel",
    }
    assert result.blob_member == "model/data/aotinductor/model/m.wrapper_weights.blob"
    assert result.blob is not None
    assert b"".join(result.blob.chunks()) == BLOB
    assert result.libraries == ("model/data/aotinductor/model/m.wrapper.so",)
    assert (result.code_digest, result.code_size) == (digest_file(result.code), result.code.stat().st_size)


def test_the_code_layer_depends_neither_on_sources_nor_on_weights_nor_on_order_nor_on_chance(
    tmp_path: Path,
) -> None:
    first, second = tmp_path / "a.pt2", tmp_path / "b.pt2"
    first.write_bytes(package(root="a"))
    second.write_bytes(
        package(root="b", blob=bytes(64), comment=b"// elsewhere", chance=b"7" * 40, turned=True)
    )
    digests = {split(path, tmp_path / "code.zip").code_digest for path in (first, second)}
    assert len(digests) == 1


def test_other_code_has_another_digest_and_another_identity(tmp_path: Path) -> None:
    first, second = tmp_path / "a.pt2", tmp_path / "b.pt2"
    first.write_bytes(package())
    second.write_bytes(package(library=b"\x7fELF other"))
    identities = []
    for path in (first, second):
        result = split(path, path.with_suffix(".zip"))
        identities.append(read_member(result.code, "model/.data/serialization_id"))
    assert len(set(identities)) == 2
    assert all(identity.isdigit() and len(identity) == 40 for identity in identities)


def test_libraries_pass_through_strip(compiled: Path, tmp_path: Path) -> None:
    def strip(path: Path) -> None:
        path.write_bytes(path.read_bytes().removesuffix(b" debug"))

    result = split(compiled, tmp_path / "code.zip", strip=strip)
    assert read_member(result.code, result.libraries[0]) == b"\x7fELF code"


def test_a_package_without_constants_has_no_blob(tmp_path: Path) -> None:
    path = tmp_path / "a.pt2"
    path.write_bytes(package(blob=None))
    result = split(path, tmp_path / "code.zip")
    assert (result.blob, result.blob_member) == (None, "")
    single = write_single_file(result.code, result.blob_member, [], 0, tmp_path / "model.pt2")
    assert single.digest == result.code_digest


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (raw_zip(RawMember(b"a/x_weights.blob"), RawMember(b"a/y_weights.blob")), "several blobs"),
        (raw_zip(RawMember(b"a/x"), RawMember(b"b/y")), "one top-level folder"),
        (raw_zip(RawMember(b"x")), "one top-level folder"),
        (raw_zip(RawMember(b"a/x_weights.blob", method=8)), "compressed"),
    ],
)
def test_what_is_no_package_of_the_compiler_is_refused(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "a.pt2"
    path.write_bytes(data)
    with pytest.raises(CorruptArchive, match=reason):
        split(path, tmp_path / "code.zip")


def test_the_single_file_holds_the_code_then_the_blob_and_its_listing_is_true(
    compiled: Path, tmp_path: Path
) -> None:
    result = split(compiled, tmp_path / "code.zip")
    out = tmp_path / "model.pt2"
    single = write_single_file(result.code, result.blob_member, [BLOB[:7], BLOB[7:]], len(BLOB), out)
    assert (single.digest, single.size) == (digest_file(out), out.stat().st_size)
    assert single.members == listing(out)
    assert single.members[:-1] == listing(result.code)
    assert single.members[-1] == Member(result.blob_member, len(BLOB), digest_bytes(BLOB))
    assert b"".join(assemble(result.code, result.blob_member, [BLOB], len(BLOB))) == out.read_bytes()
    with zipfile.ZipFile(out) as expected:
        assert expected.testzip() is None


@pytest.mark.parametrize("blob", [[BLOB[:-1]], [BLOB, b"x"], []])
def test_a_blob_of_another_length_is_refused_and_leaves_nothing(
    compiled: Path, tmp_path: Path, blob: list[bytes]
) -> None:
    result = split(compiled, tmp_path / "code.zip")
    with pytest.raises(CorruptArchive, match=r"a member has \d+ bytes instead of"):
        write_single_file(result.code, result.blob_member, blob, len(BLOB), tmp_path / "model.pt2")
    assert not (tmp_path / "model.pt2").exists()


def test_the_blob_is_rebuilt_from_safetensors_with_zeros_between(tmp_path: Path) -> None:
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes(safetensors({"b": ("I64", (2,), b"B" * 16), "a": ("F32", (3,), b"A" * 12)}))
    literals = safetensors({"c": ("BOOL", (), b"\1")})
    constants = layout(
        200, ("a", "float32", (3,), 0), ("b", "int64", (2,), 64), ("c", "bool", (), 128, "extra")
    )
    expected = b"A" * 12 + bytes(52) + b"B" * 16 + bytes(48) + b"\1" + bytes(71)
    assert b"".join(blob_chunks(constants, weights, literals)) == expected


@pytest.mark.parametrize(
    ("constant", "size", "error", "reason"),
    [
        (("x", "float32", (3,), 0), 12, WeightsMismatch, "missing"),
        (("a", "float32", (4,), 0), 16, WeightsMismatch, r"float32\[3\].*float32\[4\]"),
        (("a", "int32", (3,), 0), 12, WeightsMismatch, r"int32\[3\]"),
        (("a", "float32", (3,), 0, "extra"), 12, WeightsMismatch, "missing"),
        (("a", "float32", (3,), 4), 12, LayoutUnproven, "exceed the blob"),
        (("t", "float32", (2, 2), 0, "weights", (1, 1)), 16, LayoutUnproven, "leave gaps or overlap"),
        (("t", "float32", (2, 2), 0, "weights", (1, 4)), 16, LayoutUnproven, "leave gaps or overlap"),
    ],
)
def test_a_layout_that_does_not_fit_is_refused_before_a_byte_leaves(
    tmp_path: Path, constant: tuple[object, ...], size: int, error: type[Exception], reason: str
) -> None:
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes(safetensors({"a": ("F32", (3,), bytes(12)), "t": ("F32", (2, 2), bytes(16))}))
    with pytest.raises(error, match=reason):
        next(blob_chunks(layout(size, constant), weights))


@pytest.mark.parametrize(("dtype", "name"), [("F32", "float32"), ("F16", "float16"), ("I8", "int8")])
@pytest.mark.parametrize(
    ("shape", "order"),
    [((2, 3, 4, 5), (0, 2, 3, 1)), ((3, 4), (1, 0)), ((2, 3, 1, 5), (0, 2, 3, 1)), ((2, 1, 3), (2, 1, 0))],
)
def test_a_constant_has_another_order_of_dimensions_in_the_blob(
    tmp_path: Path, dtype: str, name: str, shape: tuple[int, ...], order: tuple[int, ...]
) -> None:
    values = np.arange(math.prod(shape)).astype(name).reshape(shape)
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes(safetensors({"a": (dtype, shape, values.tobytes())}))
    moved = values.transpose(order).copy()
    strides = dict(zip(order, np.array(moved.strides) // values.itemsize, strict=True))
    stride = tuple(int(strides[place]) for place in range(len(shape)))
    constants = layout(values.nbytes + 3, ("a", name, shape, 3, "weights", stride))

    assert b"".join(blob_chunks(constants, weights)) == bytes(3) + moved.tobytes()


def test_a_constant_that_takes_too_long_to_reorder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes(safetensors({"a": ("I8", (9, 2), bytes(18))}))
    constants = layout(18, ("a", "int8", (9, 2), 0, "weights", (1, 9)))
    assert b"".join(blob_chunks(constants, weights)) == bytes(18)
    for limit, least in (("MAX_ROWS", 1), ("MAX_REORDERED_BYTES", 17)):
        with monkeypatch.context() as patch:
            patch.setattr(constants_layout, limit, least)
            with pytest.raises(LayoutUnproven, match="take too long to reorder"):
                next(blob_chunks(constants, weights))


def test_overlapping_constants_are_refused(tmp_path: Path) -> None:
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes(safetensors({"a": ("F32", (3,), bytes(12)), "b": ("F32", (3,), bytes(12))}))
    with pytest.raises(LayoutUnproven, match="overlap"):
        next(blob_chunks(layout(64, ("a", "float32", (3,), 0), ("b", "float32", (3,), 8)), weights))


def test_strides_of_dimensions_of_one_do_not_matter(tmp_path: Path) -> None:
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes(safetensors({"a": ("F32", (2, 1), struct.pack("<2f", 1, 2))}))
    constants = layout(8, ("a", "float32", (2, 1), 0, "weights", (1, 77)))
    assert b"".join(blob_chunks(constants, weights)) == struct.pack("<2f", 1, 2)
