"""Bundles are read in place, and hostile or damaged ones are refused."""

from __future__ import annotations

import io
import json
import tarfile
from typing import TYPE_CHECKING

import pytest

from pt2hub.client.exports.bundle import Bundle, write_bundle
from pt2hub.domain.artifacts import MANIFEST_TYPE, Descriptor
from pt2hub.domain.digests import digest_bytes, hex_of
from pt2hub.errors import CorruptArchive, NotFound

if TYPE_CHECKING:
    from pathlib import Path

DATA = b"bytes of a manifest"
DIGEST = digest_bytes(DATA)
ENTRY = Descriptor(MANIFEST_TYPE, DIGEST, len(DATA), {"io.pt2hub.reference": "team/net@prod"})


def write(folder: Path, *, as_tar: bool) -> Path:
    blob = folder / "blob"
    blob.write_bytes(DATA)
    out = folder / ("bundle.tar" if as_tar else "bundle")
    if not as_tar:
        out.mkdir()
    write_bundle(out, [ENTRY], {DIGEST: blob}, as_tar=as_tar)
    return out


@pytest.mark.parametrize("as_tar", [True, False])
def test_what_was_written_is_read_in_ranges(tmp_path: Path, *, as_tar: bool) -> None:
    bundle = Bundle.open(write(tmp_path, as_tar=as_tar))
    assert bundle.manifests == [{"digest": DIGEST, "io.pt2hub.reference": "team/net@prod"}]
    assert (bundle.size(DIGEST), bundle.read(DIGEST)) == (len(DATA), DATA)
    assert b"".join(bundle.chunks(DIGEST, 6, 10)) == DATA[6:10]


def test_equal_contents_give_equal_tar_files(tmp_path: Path) -> None:
    first = write(tmp_path, as_tar=True).read_bytes()
    (tmp_path / "blob").touch()
    assert write(tmp_path, as_tar=True).read_bytes() == first


def test_links_and_names_beside_the_layout_are_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "hostile.tar"
    secret = tmp_path / "secret"
    secret.write_text("secret")
    with tarfile.open(path, "w") as tar:
        index = json.dumps({"manifests": [{"digest": DIGEST}]}).encode()
        entry = tarfile.TarInfo("index.json")
        entry.size = len(index)
        tar.addfile(entry, io.BytesIO(index))
        link = tarfile.TarInfo(f"blobs/sha256/{hex_of(DIGEST)}")
        link.type, link.linkname = tarfile.SYMTYPE, str(secret)
        tar.addfile(link)
        tar.addfile(tarfile.TarInfo("../../outside"))
    bundle = Bundle.open(path)
    with pytest.raises(CorruptArchive, match="is missing"):
        bundle.read(DIGEST)


@pytest.mark.parametrize(
    "index",
    ["", "[]", "{}", '{"manifests": 3}', '{"manifests": [{}]}', '{"manifests": [[]]}', "[" * 100_000],
)
def test_a_malformed_index_is_refused(tmp_path: Path, index: str) -> None:
    out = write(tmp_path, as_tar=False)
    (out / "index.json").write_text(index)
    with pytest.raises(CorruptArchive, match="malformed"):
        Bundle.open(out)


def test_what_is_no_bundle_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        Bundle.open(tmp_path / "none.tar")
    text = tmp_path / "text.tar"
    text.write_text("no tar")
    with pytest.raises(CorruptArchive, match="Cannot read the bundle as a tar file"):
        Bundle.open(text)
    (tmp_path / "empty").mkdir()
    with pytest.raises(CorruptArchive, match=r"index\.json is missing"):
        Bundle.open(tmp_path / "empty")
