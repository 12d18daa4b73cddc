"""Files to attach to a version: checked and uploaded, and named by digest in the spec."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub.domain.attached_files.names import check_name, check_names
from pt2hub.domain.digests import DIGEST_PATTERN
from pt2hub.errors import EmptyFile, InvalidInput, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from pt2hub.domain.digests import Digest

    Given: TypeAlias = "Mapping[str, str | Path | Mapping[str, Any]]"

_HINT = (
    'Write files={"tokenizer.json": "path/to/tokenizer.json"}, or an object with path, kind and media_type.'
)
_DIGEST = re.compile(DIGEST_PATTERN)


def has_paths(document: Any) -> bool:
    """Return whether a spec names attached files by path, which only a client can read."""
    files = document.get("files") if isinstance(document, dict) else None
    return isinstance(files, dict) and any(_path_of(item) is not None for item in files.values())


def upload_files(
    document: dict[str, Any], given: Given, folder: Path, upload: Callable[[Path], Digest]
) -> None:
    """Upload the files of a spec that are named by path, and those given beside it, and name them by digest.

    Args:
        document: The spec, which is changed.
        given: Files by name, which come before the spec's own.
        folder: The folder that paths in the spec are relative to.

    Raises:
        InvalidInput: A name or an object is malformed; often a subclass (`pt2hub.errors.files`).
        NotFound: A file is not there.
        EmptyFile: A file is empty.
    """
    own = document.get("files")
    if not isinstance(own, Mapping | None):
        raise InvalidInput("files must be an object with a file for each name", where="files", hint=_HINT)
    paths = dict.fromkeys(own or {}, folder) | {name: Path() for name in given}
    files: dict[str, Any] = {**(own or {}), **given}
    _check(files)
    found = {name: _find(name, item, paths[name]) for name, item in files.items()}  # before the first is sent
    if files:
        document["files"] = {
            name: files[name] if path is None else {**_rest(files[name]), "digest": upload(path)}
            for name, path in found.items()
        }


def existing_file(name: str, path: Path) -> Path:
    """Return the path of a file to attach.

    Raises:
        NotFound: It is not there.
        InvalidInput: It is a folder.
        EmptyFile: It is empty.
    """
    check_is_file(path, f"files.{name[:80]}")
    if path.stat().st_size == 0:
        raise EmptyFile(
            f"File {str(path)!r} is empty",
            where=f"files.{name[:80]}",
            hint="Leave it out, or write its content.",
        )
    return path


def check_is_file(path: Path, where: str) -> None:
    """Check that a path leads to a file.

    Raises:
        NotFound: It does not exist.
        InvalidInput: It is a folder.
    """
    if path.is_dir():
        raise InvalidInput(
            f"{str(path)!r} is a folder, and only files can be attached",
            where=where,
            hint=f"Attach its files one by one, or pack them: {_tar_command(path)}",
        )
    if not path.is_file():
        raise NotFound(
            f"File {str(path)!r} not found", where=where, hint="Pass the path of a file that can be read."
        )


def no_path(where: str) -> InvalidInput:
    """Return the error for an empty path, which Python takes for the current folder."""
    return InvalidInput(
        "The path of a file is empty", where=where, hint="Pass the path of a file that can be read."
    )


def _tar_command(folder: Path) -> str:
    """Return the command that packs a folder into an archive outside of it."""
    whole = folder.resolve()
    name = f"{whole.name.lstrip('.-') or 'files'}.tar"
    archive = folder / ".." / name if Path.cwd().is_relative_to(whole) else Path(name)
    return shlex.join(
        ["tar", "-cf", str(archive), *(["--"] if str(folder).startswith("-") else []), str(folder)]
    )


def _check(files: Mapping[str, Any]) -> None:
    for name in files:
        if not isinstance(name, str):
            raise InvalidInput(f"Invalid file name {name!r:.80}", where="files", hint=_HINT)
        check_name(name)
    check_names(list(files))


def _find(name: str, item: Any, folder: Path) -> Path | None:
    path = _path_of(item)
    if path is not None and _given_path(item) == "":
        raise no_path(f"files.{name[:80]}")
    return None if path is None else existing_file(name, folder / path)


def _path_of(item: Any) -> Path | None:
    """Return the path in a file's entry; None if the entry names a digest, or the server says what is wrong with it."""
    given = _given_path(item)
    if not isinstance(given, str | Path) or (isinstance(given, str) and _DIGEST.fullmatch(given)):
        return None
    return Path(given)


def _given_path(item: Any) -> Any:
    return item.get("path") if isinstance(item, Mapping) else item


def _rest(item: Any) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key != "path"} if isinstance(item, Mapping) else {}
