"""Reading and encoding of documents that users write: YAML or JSON files, or dicts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pt2hub.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from pathlib import Path


def read_document(path: Path, what: str, *, hint: str | None = None) -> dict[str, Any]:
    """Read a YAML or JSON document as the server does, with 1e-3 as a number.

    Args:
        what: Kind of document, for the error: `spec` or `policy`.
        hint: Hint of the error if the file holds no document.

    Raises:
        NotFound: The file cannot be read.
        InvalidInput: The file is not well-formed.
    """
    from pt2hub.wire.documents import parse_document  # it brings yaml, which following builds does without

    try:
        body = read_bytes(path, what)
        return parse_document(body, hint=hint) if hint else parse_document(body)
    except InvalidInput as exc:
        raise exc.replace(where=f"{path}: {exc.where}") from exc


def read_bytes(path: Path, what: str) -> bytes:
    """Read a document's bytes; arguments and errors as for `read_document`."""
    try:
        return path.read_bytes()
    except OSError as exc:
        raise NotFound(
            f"Cannot read the {what}: {exc.strerror or exc}",
            where=str(path),
            hint="Pass the path of a YAML or JSON file.",
        ) from exc


def encode_document(document: Any, what: str) -> bytes:
    """Write a document as JSON.

    Raises:
        InvalidInput: A value cannot be encoded as JSON.
    """
    try:
        return json.dumps(document).encode()
    except (TypeError, ValueError, RecursionError) as exc:
        raise InvalidInput(
            f"The {what} cannot be encoded as JSON: {exc}",
            where=what,
            hint="Use dicts with text keys, lists, text, numbers, booleans and None.",
        ) from exc
