"""Code archives: packed by the client, checked by the server, unpacked in the sandbox; never executed here.

They are zips like every other here, so the same parser decides what is taken; code has narrower limits, and rules
of its own where its files become files again: names that one file system keeps apart and another does not are refused.
"""

from __future__ import annotations

import os
import stat
import unicodedata
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from pt2hub.archive.sources import open_file
from pt2hub.archive.zip.encoder import ZipEncoder, write_pieces
from pt2hub.archive.zip.reader import Archive
from pt2hub.archive.zip.validation import Entry, Limits, printable_name, validate
from pt2hub.errors import BadCodeArchive, CorruptArchive, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pt2hub.archive.sources import ByteSource

LIMITS = Limits(members=10_000, total=256 << 20, directory=4 << 20)
"""Limits of a code archive: source text stays far below them, and data belongs in the weights."""
_DEEPEST = 32
_MAX_PART_BYTES = 255
"""Maximum bytes of a file's name on common file systems."""
_LEFT_OUT = (".*", "__pycache__", "CVS", "*.pyc", "*.pyo", "*.egg-info")
"""Names of files that are left out: hidden files, and those of git, hg, svn, Python and pip."""
_ENVIRONMENT = "pyvenv.cfg"
"""File that marks a virtual environment."""
_WHERE = "source.code"
_PACK = "`pt2hub publish --code FOLDER` creates a valid archive of a folder."
_SMALLER = "Use a folder that contains only the model's code."


def pack_code(folder: Path, out: Path) -> int:
    """Pack a folder's files; equal folders give equal bytes.

    Hidden files, byte code, version control and virtual environments stay out.

    Args:
        out: The archive, replaced where it exists.

    Returns:
        How many files it holds.

    Raises:
        NotFound: Folder not found.
        BadCodeArchive: It contains no Python file, too much, a link to a target outside, or something other than files;
            `where` names the file.
    """
    if not folder.is_dir():
        raise NotFound(
            "It is a file" if folder.exists() else "Folder not found",
            where=str(folder),
            hint="Pass the folder that contains the model's modules.",
        )
    files = sorted(_files(folder, folder.resolve()))
    names = [file.relative_to(folder).as_posix() for file in files]
    with _translate_errors(str(folder), hint=_SMALLER):
        _check_names(names)
        _check_amount(files)
        write_pieces(out, _zip_chunks(zip(names, files, strict=True)))
    return len(files)


def check_code(source: Path | ByteSource) -> list[str]:
    """Check an archive's names and sizes without extracting it; its bytes are checked on unpacking.

    Returns:
        The members' names, sorted.

    Raises:
        BadCodeArchive: It is damaged, too large, without a Python file, or a member is none that becomes a file
            below the archive's folder: an absolute name, `..`, a backslash, a link, the same name twice, encrypted.
    """
    with _translate_errors(_WHERE, hint=_PACK), open_file(source) as file:
        return sorted(entry.name for entry in _check_entries(file))


def unpack_code(path: Path, into: Path) -> None:
    """Write an archive's files to a folder, after the checks of `check_code`.

    Args:
        into: A folder, new or empty.

    Raises:
        BadCodeArchive: As for `check_code`, or a member's bytes are damaged.
    """
    with _translate_errors(_WHERE, hint=_PACK), path.open("rb") as file:
        _check_entries(file)
        archive = Archive(file, limits=LIMITS)
        into.mkdir(parents=True, exist_ok=True)
        for entry in archive.entries:
            out = into / entry.name
            out.parent.mkdir(parents=True, exist_ok=True)
            with out.open("xb") as written:
                written.writelines(archive.chunks(entry))


def _files(folder: Path, root: Path) -> Iterator[Path]:
    """Yield every file to pack; links are resolved and must stay inside the folder."""
    with _readable(folder):
        found = list(folder.iterdir())
    if _ENVIRONMENT in (path.name for path in found):
        return
    for path in found:
        if any(fnmatchcase(path.name, pattern) for pattern in _LEFT_OUT):
            continue
        with _readable(path):
            mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            yield _resolve_link(path, root)
        elif stat.S_ISREG(mode):
            yield path
        elif stat.S_ISDIR(mode):
            yield from _files(path, root)
        else:
            raise BadCodeArchive("Neither a file nor a folder", where=_display_path(path), hint=_SMALLER)


def _resolve_link(path: Path, root: Path) -> Path:
    with _readable(path):
        target = Path(os.path.realpath(path))
    if not target.is_relative_to(root):
        raise BadCodeArchive(
            "The link's target is outside the folder",
            where=_display_path(path),
            hint="Replace the link by a copy of its target.",
        )
    if not target.is_file():
        raise BadCodeArchive(
            "The link's target does not exist",
            where=_display_path(path),
            hint="Delete it, or put the folder itself there.",
        )
    return path


def _check_amount(files: Sequence[Path]) -> None:
    if len(files) > LIMITS.members:
        raise BadCodeArchive(f"the folder has too many files (more than {LIMITS.members})")
    if sum(map(_size, files)) > LIMITS.total:
        raise BadCodeArchive(f"the files are too large (more than {LIMITS.total >> 20} MiB)")


def _size(file: Path) -> int:
    with _readable(file):
        return file.stat().st_size


def _zip_chunks(files: Iterable[tuple[str, Path]]) -> Iterator[bytes]:
    encoder = ZipEncoder()
    for name, file in files:
        with _readable(file):
            data = file.read_bytes()
        yield from encoder.whole(name, data)
    yield from encoder.end()


def _check_entries(file: BinaryIO) -> tuple[Entry, ...]:
    entries = validate(file, limits=LIMITS)
    _check_names([entry.name for entry in entries])
    return entries


def _check_names(names: Sequence[str]) -> None:
    if not any(name.endswith(".py") for name in names):
        raise BadCodeArchive("it contains no Python file")
    spelled: dict[str, str] = {}
    for name in names:
        parts = name.split("/")
        if len(parts) > _DEEPEST:
            raise _bad_member(name, f"it is more than {_DEEPEST} folders deep")
        if _undecodable(name):
            raise _bad_member(name, "its name is not valid UTF-8")
        if any(len(part.encode()) > _MAX_PART_BYTES for part in parts):
            raise _bad_member(name, f"a part of its name is longer than {_MAX_PART_BYTES} bytes")
        for count in range(1, len(parts) + 1):
            path = "/".join(parts[:count])
            if (other := spelled.setdefault(_fold_name(path), path)) != path:
                raise _bad_member(name, f"on some systems it has the same name as {printable_name(other)}")


def _undecodable(name: str) -> bool:
    """Return whether a file's name is invalid UTF-8, which Python decodes to lone surrogates."""
    return any("\ud800" <= letter <= "\udfff" for letter in name)


def _fold_name(path: str) -> str:
    """Return a name's normal form, equal for names that a case-insensitive or normalizing file system confuses."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def _bad_member(name: str, problem: str) -> BadCodeArchive:
    return BadCodeArchive(f"{printable_name(name)}: {problem}")


@contextmanager
def _translate_errors(where: str, *, hint: str) -> Iterator[None]:
    """Translate the errors of the parser and of the checks above to errors with position and hint."""
    try:
        yield
    except CorruptArchive as error:
        message = f"{error.where}: {error.message}" if error.where else error.message
        raise BadCodeArchive(f"Invalid code: {message}", where=where, hint=hint) from error
    except BadCodeArchive as error:
        if error.where:  # a file of the user's, said already
            raise
        raise BadCodeArchive(
            f"Invalid code: {error.message}", where=where, hint=hint, details=error.details
        ) from error


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadCodeArchive(
            f"Cannot read it: {error.strerror or error}",
            where=_display_path(path),
            hint="Make it readable, or delete it.",
        ) from error


def _display_path(path: Path) -> str:
    return printable_name(str(path))
