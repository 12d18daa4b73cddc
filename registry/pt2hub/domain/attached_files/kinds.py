"""Kinds and media types of attached files, and what a name says about them."""

from __future__ import annotations

import re
from enum import StrEnum

from pt2hub.errors import InvalidInput, InvalidMediaType

MAX_MEDIA_TYPE_CHARS = 127
_TYPE_PART = r"[a-z0-9][a-z0-9!#$&^_.+-]{0,62}"
MEDIA_TYPE_PATTERN = rf"{_TYPE_PART}/{_TYPE_PART}"
"""RFC 6838, in lower case and without parameters."""
_MEDIA_TYPE = re.compile(MEDIA_TYPE_PATTERN)


class FileKind(StrEnum):
    """What a file is for."""

    TOKENIZER = "tokenizer"
    LABELS = "labels"
    PREPROCESSING = "preprocessing"
    CALIBRATION = "calibration"
    OTHER = "other"
    CARD = "card"
    LICENSE = "license"
    EXAMPLE = "example"
    DOCUMENT = "document"

    @property
    def is_documentation(self) -> bool:
        """Whether people read it; programs need the others, which never change after the publication."""
        return self in _DOCUMENTATION


_DOCUMENTATION = frozenset({FileKind.CARD, FileKind.LICENSE, FileKind.EXAMPLE, FileKind.DOCUMENT})
DOCUMENTATION_KINDS = tuple(kind for kind in FileKind if kind in _DOCUMENTATION)
_KINDS = (
    (FileKind.CARD, re.compile(r"(readme|model[-_ ]?card|card)\.(md|markdown)")),
    (FileKind.LICENSE, re.compile(r"(licen[cs]e|copying|notice)([-_.].*)?")),
    (
        FileKind.TOKENIZER,
        re.compile(
            r"(.*tokenizer.*|vocab.*|merges.*|special_tokens_map.*|added_tokens.*|s(entence)?piece.*)"
        ),
    ),
    (FileKind.TOKENIZER, re.compile(r".*\.tiktoken")),
    (FileKind.LABELS, re.compile(r"(labels?|label[-_]?map|class(es|[-_]names)|id2label)([-_.].*)?")),
    (
        FileKind.PREPROCESSING,
        re.compile(
            r"((image[-_]|pre)?process(or|ing).*|preprocess.*|feature[-_]extractor.*|transforms?[-_.].*)"
        ),
    ),
    (FileKind.CALIBRATION, re.compile(r"calibration.*")),
    (FileKind.EXAMPLE, re.compile(r"(examples?|requests?|responses?)([-_.].*)?")),
    (FileKind.DOCUMENT, re.compile(r".*\.(md|markdown|rst|pdf)")),
)
_MEDIA_TYPES = {
    "csv": "text/csv",
    "gif": "image/gif",
    "html": "text/html",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "json": "application/json",
    "jsonl": "application/jsonl",
    "markdown": "text/markdown",
    "md": "text/markdown",
    "pdf": "application/pdf",
    "png": "image/png",
    "rst": "text/x-rst",
    "svg": "image/svg+xml",
    "txt": "text/plain",
    "xml": "application/xml",
    "yaml": "application/yaml",
    "yml": "application/yaml",
    "zip": "application/zip",
}
"""By suffix; not those of the machine, which would make the same publication another version elsewhere."""
BINARY = "application/octet-stream"


def read_kind(text: str, where: str) -> FileKind:
    """Return a kind by its name.

    Raises:
        InvalidInput: There is no such kind.
    """
    try:
        return FileKind(text)
    except ValueError as exc:
        raise InvalidInput(
            f"Unknown kind of file {text[:80]!a}", where=where, hint=f"Kinds: {', '.join(FileKind)}."
        ) from exc


def kind_of(name: str) -> FileKind:
    """Return the kind that a file's name suggests."""
    folded = name.casefold()
    return next((kind for kind, pattern in _KINDS if pattern.fullmatch(folded)), FileKind.OTHER)


def media_type_of(name: str) -> str:
    """Return the media type that a file's name suggests."""
    stem, dot, suffix = name.casefold().rpartition(".")
    if not dot and kind_of(name) is FileKind.LICENSE:
        return "text/plain"
    return _MEDIA_TYPES.get(suffix, BINARY) if stem else BINARY


def check_media_type(text: str, where: str) -> str:
    """Return a media type in lower case.

    Raises:
        InvalidMediaType: It is malformed.
    """
    lower = text.lower()
    if len(text) > MAX_MEDIA_TYPE_CHARS or not _MEDIA_TYPE.fullmatch(lower):
        raise InvalidMediaType(
            f"Invalid media type {text[:80]!a}",
            where=where,
            hint="Write type/subtype without parameters, such as text/plain or application/json.",
        )
    return lower
