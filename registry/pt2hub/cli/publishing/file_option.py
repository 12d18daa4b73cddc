"""The option `--file` of `pt2hub publish`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pt2hub.domain.attached_files.kinds import FileKind

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHOWN = 80
Files = Annotated[
    list[str] | None,
    typer.Option(
        "--file",
        metavar="FILE[:KIND][:TYPE]",
        help="A file to attach, such as tokenizer.json, labels.txt:text/plain or net.vocab:tokenizer; repeat it for more.",
    ),
]


def parse_files(given: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return files by name from the values of the option.

    Raises:
        NotFound: A file does not exist.
        InvalidInput: It is a folder, or what follows a path is neither a kind nor a media type.
        DuplicateFile: Two have the same name.
    """
    from pt2hub.domain.attached_files.names import check_names

    files = [_parse(text) for text in given]
    check_names([Path(item["path"]).name for item in files])
    return {Path(item["path"]).name: item for item in files}


def _parse(text: str) -> dict[str, Any]:
    """Return a path with what follows it; a file whose name has a colon is taken as it is."""
    found: dict[str, Any] = {}
    path = text
    while not Path(path).exists():
        start, colon, last = path.rpartition(":")
        name = "media_type" if "/" in last else "kind" if last in list(FileKind) else None
        if not colon or name is None or name in found:
            break
        found, path = {**found, name: last}, start
    _check_path(text, path)
    return {"path": path, **found}


def _check_path(text: str, path: str) -> None:
    """Refuse what is no file here, where the option is known: its name would be refused for a colon or a missing suffix."""
    from pt2hub.client.publishing.attached_files import check_is_file, no_path
    from pt2hub.errors import InvalidInput

    where = f"--file {text[:_SHOWN]}" if text else "--file"
    if not path:
        raise no_path(where)
    *beginning, last = path.split(":")
    ends = range(len(beginning), 0, -1)
    if not Path(path).exists() and any(Path(":".join(beginning[:end])).is_file() for end in ends):
        raise InvalidInput(
            f"{last[:_SHOWN]!a} is neither a kind of file nor a media type",
            where=where,
            hint=f"Kinds: {', '.join(FileKind)}; a media type is type/subtype, such as text/plain.",
        )
    check_is_file(Path(path), where)
