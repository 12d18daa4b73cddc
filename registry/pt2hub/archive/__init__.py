"""Reading, validating, splitting and assembling `.pt2` archives, without torch.

Nothing here extracts. Members are read in place through one strict parser, so that what is checked is what
is read, and archives are written by one encoder, so that the same members give the same bytes everywhere.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from pt2hub.archive.safetensors_header import TensorEntry, read_safetensors_header
from pt2hub.archive.sources import ByteSource
from pt2hub.archive.zip.reader import LITERALS, Archive, listing, open_archive, read_literals, read_member
from pt2hub.archive.zip.validation import Entry, Limits, validate

if TYPE_CHECKING:
    from pt2hub.archive.constants_layout import blob_chunks
    from pt2hub.archive.package_splitter import MemberBytes, SplitResult, split
    from pt2hub.archive.single_file import assemble, write_single_file
    from pt2hub.archive.zip.encoder import write_zip

__all__ = [
    "LITERALS",
    "Archive",
    "ByteSource",
    "Entry",
    "Limits",
    "MemberBytes",
    "SplitResult",
    "TensorEntry",
    "assemble",
    "blob_chunks",
    "listing",
    "open_archive",
    "read_literals",
    "read_member",
    "read_safetensors_header",
    "split",
    "validate",
    "write_single_file",
    "write_zip",
]

# Loading an artifact only reads: a third of this package's import is the writing side, left until it is used.
_WRITING = {
    "MemberBytes": "package_splitter",
    "SplitResult": "package_splitter",
    "assemble": "single_file",
    "blob_chunks": "constants_layout",
    "split": "package_splitter",
    "write_single_file": "single_file",
    "write_zip": "zip.encoder",
}


def __getattr__(name: str) -> object:
    if name in _WRITING:
        found: object = getattr(import_module(f"{__name__}.{_WRITING[name]}"), name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
