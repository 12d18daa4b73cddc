"""Bundles: artifacts as an OCI image layout, in a directory or an uncompressed tar file.

Other OCI tools read them too (`oras`, `skopeo`). The names of an image layout are fixed by the OCI image specification.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from pt2hub.client.records.version_records import RECORD
from pt2hub.domain.artifacts import INDEX_TYPE
from pt2hub.domain.codec import decode
from pt2hub.domain.digests import CHUNK, DIGEST_PATTERN, Digest, hex_of
from pt2hub.errors import BadResponse, CorruptArchive, NotFound

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from pt2hub.domain.artifacts import Descriptor

LAYOUT = "oci-layout"
INDEX = "index.json"
REFERENCE = "io.pt2hub.reference"
"""Annotation: the reference by which an artifact was exported."""
RESOLVED_AT = "io.pt2hub.resolved-at"
"""Annotation: when a reference that can move meant this artifact, in seconds since the epoch."""
T = TypeVar("T")
_LAYOUT_TEXT = b'{"imageLayoutVersion":"1.0.0"}'
_MAX_INDEX_BYTES = 4 << 20
_BLOB = re.compile(r"(?:\./)?blobs/sha256/([0-9a-f]{64})")
BUNDLE_HINT = "A bundle is written by pt2hub export bundle; copy it again if it was damaged on the way."


def write_bundle(out: Path, manifests: list[Descriptor], files: dict[Digest, Path], *, as_tar: bool) -> None:
    """Write a bundle.

    Args:
        out: A folder that exists and is empty, or the path of a tar file.
        manifests: Descriptors of the artifacts' manifests, with their annotations.
        files: All blobs, manifests among them.

    Raises:
        OSError: Something cannot be written.
    """
    index = {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [item.as_json() for item in manifests]}
    small = {LAYOUT: _LAYOUT_TEXT, INDEX: json.dumps(index, sort_keys=True).encode()}
    blobs = {f"blobs/sha256/{hex_of(digest)}": path for digest, path in sorted(files.items())}
    if as_tar:
        _write_tar(out, small, blobs)
    else:
        _write_folder(out, small, blobs)


def _write_tar(out: Path, small: dict[str, bytes], blobs: dict[str, Path]) -> None:
    with tarfile.open(out, "w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in small.items():
            tar.addfile(_entry(name, len(data)), io.BytesIO(data))
        for name, path in blobs.items():
            with path.open("rb") as file:
                tar.addfile(_entry(name, path.stat().st_size), file)


def _entry(name: str, size: int) -> tarfile.TarInfo:
    """Return an entry without owner and time, so that equal contents give equal files."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o644
    return entry


def _write_folder(out: Path, small: dict[str, bytes], blobs: dict[str, Path]) -> None:
    import shutil

    (out / "blobs" / "sha256").mkdir(parents=True)
    for name, path in blobs.items():
        shutil.copyfile(path, out / name)
    for name, data in small.items():  # last: a layout with an index is whole
        (out / name).write_bytes(data)


class Bundle:
    """A bundle, read in place: nothing is extracted, and only blobs that its index leads to are read.

    Attributes:
        path: The folder or tar file.
        manifests: The artifacts that its index lists.
        records: The version records that it lists; older bundles have none.
    """

    def __init__(self, path: Path, places: dict[str, tuple[Path, int, int]]) -> None:
        self.path = path
        self._places = places
        entries = self._index()
        self.manifests: list[dict[str, str]] = [item for item in entries if RECORD not in item]
        self.records: list[dict[str, str]] = [item for item in entries if RECORD in item]

    @classmethod
    def open(cls, path: Path) -> Bundle:
        """Open a bundle.

        Raises:
            NotFound: There is no such file or folder.
            CorruptArchive: It is not a bundle.
        """
        if path.is_dir():
            found = [item for item in (path / "blobs" / "sha256").glob("*") if item.is_file()]
            places = {item.name: (item, 0, item.stat().st_size) for item in found}
            index = path / INDEX
            if index.is_file():
                places[INDEX] = (index, 0, index.stat().st_size)
            return cls(path, places)
        if not path.exists():
            raise NotFound(f"Bundle {path} not found", where=str(path), hint="Pass a folder or a tar file.")
        return cls(path, dict(_tar_members(path)))

    def size(self, digest: Digest) -> int:
        """Return the length of a blob.

        Raises:
            CorruptArchive: The bundle lacks it.
        """
        return self._place(digest)[2]

    def read(self, digest: Digest) -> bytes:
        """Return the bytes of a small blob, unchecked.

        Raises:
            CorruptArchive: The bundle lacks it, or it is too large for a manifest.
        """
        return self._small(hex_of(digest), str(digest))

    def chunks(self, digest: Digest, start: int, stop: int) -> Generator[bytes]:
        """Yield a range of a blob."""
        path, begin, _ = self._place(digest)
        with path.open("rb") as file:
            file.seek(begin + start)
            yield from _read(file, stop - start)

    def _place(self, digest: Digest) -> tuple[Path, int, int]:
        found = self._places.get(hex_of(digest))
        if found is None:
            raise CorruptArchive(f"The bundle lacks {digest}", where=str(self.path), hint=BUNDLE_HINT)
        return found

    def _small(self, name: str, what: str) -> bytes:
        found = self._places.get(name)
        if found is None or found[2] > _MAX_INDEX_BYTES:
            reason = "is missing" if found is None else f"has {found[2]} bytes, at most {_MAX_INDEX_BYTES}"
            raise CorruptArchive(f"{what} {reason}", where=str(self.path), hint=BUNDLE_HINT)
        path, begin, size = found
        with path.open("rb") as file:
            file.seek(begin)
            return file.read(size)

    def _index(self) -> list[dict[str, str]]:
        with _no_index(self.path):
            document = json.loads(self._small(INDEX, INDEX))
            manifests: list[dict[str, Any]] = document["manifests"]
            return [
                _texts(item.get("annotations", {})) | {"digest": str(item["digest"])} for item in manifests
            ]


def read_digest(name: str, bundle: Bundle) -> Digest:
    """Return a digest that a bundle names.

    Raises:
        CorruptArchive: It is none.
    """
    if not re.fullmatch(DIGEST_PATTERN, name):
        raise CorruptArchive(f"{name[:80]!a} is not a digest", where=str(bundle.path), hint=BUNDLE_HINT)
    return Digest(name)


def read_document(cls: type[T], data: bytes, bundle: Bundle) -> T:
    """Return a manifest or config of a bundle.

    Raises:
        CorruptArchive: It is malformed.
    """
    try:
        return decode(cls, json.loads(data))
    except (ValueError, RecursionError, BadResponse) as exc:
        raise CorruptArchive(
            f"A manifest or config is malformed: {exc}", where=str(bundle.path), hint=BUNDLE_HINT
        ) from exc


def _texts(annotations: dict[str, Any]) -> dict[str, str]:
    """Return annotations; those of OCI are text."""
    if not all(isinstance(value, str) for value in annotations.values()):
        raise TypeError("an annotation is not text")
    return dict(annotations)


def _tar_members(path: Path) -> Iterator[tuple[str, tuple[Path, int, int]]]:
    """Yield the plain files of a tar file that belong to a layout, and where their bytes are."""
    try:
        with tarfile.open(path, "r:") as tar:
            for item in tar:
                match = _BLOB.fullmatch(item.name)
                name = match[1] if match else item.name.removeprefix("./")
                if item.isreg() and not item.issparse() and (match or name == INDEX):
                    yield name, (path, item.offset_data, item.size)
    except (tarfile.TarError, OSError) as exc:
        raise CorruptArchive(
            f"Cannot read the bundle as a tar file: {exc}", where=str(path), hint=BUNDLE_HINT
        ) from exc


@contextmanager
def _no_index(path: Path) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise CorruptArchive(
            "The index of the bundle is malformed", where=str(path), hint=BUNDLE_HINT
        ) from exc


def _read(file: BinaryIO, count: int) -> Generator[bytes]:
    while count > 0:
        chunk = file.read(min(CHUNK, count))
        if not chunk:
            return
        count -= len(chunk)
        yield chunk
