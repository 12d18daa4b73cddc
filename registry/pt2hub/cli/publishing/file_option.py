"""The option `--file` of `pt2hub publish`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pt2hub.domain.attached_files.kinds import FileKind

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    return {"path": path, **found}
