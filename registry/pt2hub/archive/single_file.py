"""Assembly of the single-file `model.pt2`: the code layer's members, then the compiler's blob.

The result is the same for ever, since its digest is in the artifact's config: the members keep the order of
the code layer, and the blob comes last, with a data descriptor, so that it can be streamed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.archive.zip.encoder import ZipEncoder, write_pieces
from pt2hub.archive.zip.reader import open_archive
from pt2hub.domain.artifacts import SingleFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


def assemble(code: Path, blob_member: str, blob: Iterable[bytes], blob_size: int) -> Iterator[bytes]:
    """Stream the single file.

    Args:
        blob_member: The blob's path in the result; empty without constants.
        blob: The blob in pieces, see `blob_chunks`.
        blob_size: Its length in bytes.

    Raises:
        CorruptArchive: The code layer is damaged, or the blob is not of that length.
    """
    return _pieces(ZipEncoder(), code, blob_member, blob, blob_size)


def write_single_file(
    code: Path, blob_member: str, blob: Iterable[bytes], blob_size: int, out: Path
) -> SingleFile:
    """Write the single file in one pass; return its digest and its listing.

    Args:
        blob_member: The blob's path in the result; empty without constants.
        blob: The blob in pieces, see `blob_chunks`.
        blob_size: Its length in bytes.
        out: The file, replaced where it exists; removed where something fails.

    Raises:
        CorruptArchive: The code layer is damaged, or the blob is not of that length.
    """
    encoder = ZipEncoder(listed=True)
    digest, size = write_pieces(out, _pieces(encoder, code, blob_member, blob, blob_size))
    return SingleFile(digest, size, tuple(encoder.members))


def _pieces(
    encoder: ZipEncoder, code: Path, blob_member: str, blob: Iterable[bytes], blob_size: int
) -> Iterator[bytes]:
    with open_archive(code) as archive:
        for entry in archive.entries:
            yield from encoder.member(entry.name, entry.size, archive.chunks(entry), crc=entry.crc)
    if blob_member:
        yield from encoder.member(blob_member, blob_size, blob)
    yield from encoder.end()
