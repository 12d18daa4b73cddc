"""The server's errors about a publication, which name fields of the spec: named by the option that gave the value."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pt2hub.cli.publishing.source_positions import in_file
from pt2hub.domain.labels import check_key
from pt2hub.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pt2hub.client.publishing.options import SpecOptions
    from pt2hub.errors import Pt2hubError

_SHOWN = 80
_DERIVATION = re.compile(r"derived_from\[(\d{1,3})\]")


def in_request(error: Pt2hubError, spec: Path, options: SpecOptions) -> Pt2hubError:
    """Return an error about a publication with the option, or the place in the spec's file, that it is about."""
    option = _option(error, spec, options) or _derivation(error, spec, options)
    if not option:
        return in_file(error, spec)
    details = error.details[1:] and error.details  # a single one has the field's name and repeats the message
    return error.replace(where=option, details=details)


def _option(error: Pt2hubError, spec: Path, options: SpecOptions) -> str:
    """Return the option with the value that an error is about, which comes before the spec's; empty if there is none."""
    if key := _label(error, options.get("labels") or {}):
        return f"--label {key[:_SHOWN]}"
    name = _file(error, options.get("files") or {}, spec)
    return f"--file {name[:_SHOWN]}" if name else ""


def _label(error: Pt2hubError, given: Iterable[str]) -> str:
    """Return the label that an error is about; empty if it is about none of these, or about all of them."""
    if error.where == "labels":  # a key is malformed, or there are too many
        return next((key for key in given if _refusal(key) == error.message), "")
    return next((key for key in given if error.where == f"labels.{key}"), "")


def _refusal(key: str) -> str:
    """Return the message that refuses a label's key; empty for a valid one."""
    try:
        check_key(key)
    except InvalidInput as exc:
        return exc.message
    return ""


def _file(error: Pt2hubError, given: Iterable[str], spec: Path) -> str:
    """Return the given file that an error is about; empty if it is about another one, such as the spec's own."""
    names, where = set(given), error.where or ""
    if not names or not where.startswith("files."):
        return ""
    # Names have dots: files.model.txt.sig may be a file of that name, or a field of model.txt.
    about = [name for name in names | _own_files(spec) if _is_within(where, f"files.{name[:_SHOWN]}")]
    found = max(about, key=lambda name: (len(name), name in names), default="")
    return found if found in names else ""


def _is_within(path: str, name: str) -> bool:
    return path == name or path.startswith(f"{name}.")


def _own_files(spec: Path) -> set[str]:
    """Return the names of the files in a spec."""
    from pt2hub.client.documents import read_document

    own = read_document(spec, "spec").get("files")
    return {name for name in own if isinstance(name, str)} if isinstance(own, dict) else set()


def _derivation(error: Pt2hubError, spec: Path, options: SpecOptions) -> str:
    """Return the option that an error about a derivation is about; empty if it is about one of the spec's own."""
    from pt2hub.client.documents import read_document

    match, given = _DERIVATION.fullmatch(error.where or ""), options.get("derived_from") or ()
    if match is None or not given:
        return ""
    own = read_document(spec, "spec").get("derived_from") or []
    index = int(match[1]) - len(own)  # the client sends the spec's own first
    return f"--derived-from {given[index][:_SHOWN]}" if 0 <= index < len(given) else ""
