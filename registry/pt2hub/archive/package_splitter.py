"""Splitting of compiler packages into code layer and weights."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pt2hub.archive.zip import records
from pt2hub.archive.zip.encoder import write_zip
from pt2hub.archive.zip.reader import Archive, open_archive
from pt2hub.archive.zip.validation import printable_name
from pt2hub.domain.digests import CHUNK, Digest
from pt2hub.errors import CorruptArchive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BLOB_SUFFIX = "_weights.blob"
_SERIALIZATION_ID = ".data/serialization_id"
_ID_DIGITS = 40
"""Length of torch's package identity: two 20-digit hashes."""


@dataclass(frozen=True, slots=True)
class MemberBytes:
    """A stored member, read from its archive.

    Attributes:
        offset: Where the member's bytes begin.
    """

    path: Path
    offset: int
    size: int

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes in chunks.

        Raises:
            CorruptArchive: The archive was cut short meanwhile.
        """
        left = self.size
        with self.path.open("rb") as file:
            file.seek(self.offset)
            while left:
                chunk = file.read(min(CHUNK, left))
                if not chunk:
                    raise CorruptArchive("the archive is truncated", where=self.path.name)
                left -= len(chunk)
                yield chunk


@dataclass(frozen=True, slots=True)
class SplitResult:
    """Result of `split`.

    Attributes:
        code_size: Its length in bytes.
        blob_member: The weights' path in the single file; empty where the package has no constants, or keeps them.
        blob: The compiler's blob, still inside the package; None likewise.
    """

    code: Path
    code_digest: Digest
    code_size: int
    blob_member: str
    blob: MemberBytes | None
    sources: Mapping[str, bytes]
    libraries: tuple[str, ...]


def split(
    package: Path,
    out: Path,
    *,
    strip: Callable[[Path], None] | None = None,
    root: str = "model",
    extra: Mapping[str, bytes] | None = None,
    keep_blob: bool = False,
) -> SplitResult:
    """Write the code layer of a compiler's package.

    Args:
        package: The `.pt2` as AOTInductor wrote it, weights as `binary_blob`.
        out: Where the code layer goes.
        root: Top folder of the result; torch names it after the output file.
        extra: Further members by their path below the top folder (`data/literals.safetensors`).

    Raises:
        CorruptArchive: The package is not a well-formed `.pt2`, or has several blobs.
    """
    with open_archive(package) as archive:
        names = _rename_members(archive, root)
        blob_name = None if keep_blob else _blob(names)
        sources = {new: archive.read(old) for old, new in names.items() if new.endswith(".cpp")}
        members = {
            new: _content(archive, old, new, strip) for old, new in names.items() if _in_code(new, blob_name)
        }
        blob = _locate_blob(package, archive, names, blob_name)
    members |= {f"{root}/{name}": data for name, data in (extra or {}).items()}
    _normalise_id(members, f"{root}/{_SERIALIZATION_ID}")
    digest = write_zip(out, sorted(members.items()))
    libraries = tuple(sorted(name for name in members if name.endswith(".so")))
    return SplitResult(out, digest, out.stat().st_size, blob_name or "", blob, sources, libraries)


def _rename_members(archive: Archive, root: str) -> dict[str, str]:
    tops = {entry.name.split("/", 1)[0] for entry in archive.entries}
    if len(tops) != 1 or any("/" not in entry.name for entry in archive.entries):
        raise CorruptArchive(
            "the members of a .pt2 must be in one top-level folder",
            where=printable_name(", ".join(sorted(tops))),
        )
    return {entry.name: f"{root}/{entry.name.split('/', 1)[1]}" for entry in archive.entries}


def _blob(names: Mapping[str, str]) -> str | None:
    found = sorted(new for new in names.values() if new.endswith(BLOB_SUFFIX))
    if len(found) > 1:
        raise CorruptArchive(
            "the package has several blobs of weights", where=printable_name(", ".join(found))
        )
    return found[0] if found else None


def _in_code(name: str, blob: str | None) -> bool:
    # torch 2.11 finds the metadata through the name of the wrapper's source, so that one stays, empty.
    return name != blob and (not name.endswith(".cpp") or name.endswith(".wrapper.cpp"))


def _content(archive: Archive, old: str, new: str, strip: Callable[[Path], None] | None) -> bytes:
    if new.endswith(".cpp"):
        return b""
    data = archive.read(old)
    if strip is None or not new.endswith(".so"):
        return data
    with tempfile.TemporaryDirectory(prefix="pt2hub-strip-") as folder:
        library = Path(folder) / "library.so"
        library.write_bytes(data)
        strip(library)
        return library.read_bytes()


def _locate_blob(
    package: Path, archive: Archive, names: Mapping[str, str], blob: str | None
) -> MemberBytes | None:
    old = next((old for old, new in names.items() if new == blob), None)
    if old is None:
        return None
    entry = archive.entry(old)
    if entry.method != records.STORED:
        raise CorruptArchive("the weights are compressed", where=printable_name(old))
    return MemberBytes(package, entry.data_offset, entry.size)


def _normalise_id(members: dict[str, bytes], name: str) -> None:
    # torch mixes a hash of the member names with chance; a constant of the content keeps equal code equal.
    if name not in members:
        return
    hasher = hashlib.sha256()
    for other in sorted(set(members) - {name}):
        hasher.update(other.encode() + b"\0" + hashlib.sha256(members[other]).digest())
    number = int.from_bytes(hasher.digest(), "big") % 10**_ID_DIGITS
    members[name] = str(number).zfill(_ID_DIGITS).encode()
