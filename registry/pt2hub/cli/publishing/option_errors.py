"""The server's errors about a publication, which name fields of the spec: named by the option that gave the value."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pt2hub.cli.publishing.source_positions import in_file

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.client.publishing.options import SpecOptions
    from pt2hub.errors import Pt2hubError

_SHOWN = 80
_DERIVATION = re.compile(r"derived_from\[(\d{1,3})\]")


def in_request(error: Pt2hubError, spec: Path, options: SpecOptions) -> Pt2hubError:
    """Return an error about a publication with the option, or the place in the spec's file, that it is about."""
    option = _option(error, options) or _derivation(error, spec, options)
    if not option:
        return in_file(error, spec)
    details = error.details[1:] and error.details  # a single one has the field's name and repeats the message
    return type(error)(error.message, where=option, hint=error.hint, details=details, context=error.context)


def _option(error: Pt2hubError, options: SpecOptions) -> str:
    """Return the option with the value that an error is about, which comes before the spec's; empty if there is none."""
    where, labels, files = error.where or "", options.get("labels") or {}, options.get("files") or {}
    if where == "labels":  # one of the keys is malformed, or there are too many
        keys = [key for key in labels if key[:_SHOWN] in error.message]
        return f"--label {keys[0][:_SHOWN]}" if keys else ""
    return next(
        (
            f"--{option} {name[:_SHOWN]}"
            for option, field, given in (("label", "labels", labels), ("file", "files", files))
            for name in given
            if where == f"{field}.{name}" or where.startswith(f"{field}.{name}.")
        ),
        "",
    )


def _derivation(error: Pt2hubError, spec: Path, options: SpecOptions) -> str:
    """Return the option that an error about a derivation is about; empty if it is about one of the spec's own."""
    from pt2hub.client.documents import read_document

    match, given = _DERIVATION.fullmatch(error.where or ""), options.get("derived_from") or ()
    if match is None or not given:
        return ""
    own = read_document(spec, "spec").get("derived_from") or []
    index = int(match[1]) - len(own)  # the client sends the spec's own first
    return f"--derived-from {given[index][:_SHOWN]}" if 0 <= index < len(given) else ""
