"""Errors of attached files; never retried."""

from __future__ import annotations

from pt2hub.errors.usage import Conflict, InvalidInput


class InvalidFileName(InvalidInput):
    """The name of an attached file must be a plain name that is the same on every system."""

    code = "invalid_file_name"


class InvalidMediaType(InvalidInput):
    """The media type is malformed."""

    code = "invalid_media_type"


class DuplicateFile(InvalidInput):
    """Two attached files have the same name, or names that are the same on some systems."""

    code = "duplicate_file"


class TooManyFiles(InvalidInput):
    """A version has too many attached files."""

    code = "too_many_files"


class EmptyFile(InvalidInput):
    """An attached file is empty."""

    code = "empty_file"


class FileFixed(Conflict):
    """The file belongs to the version's publication and cannot change afterwards."""

    code = "file_fixed"
