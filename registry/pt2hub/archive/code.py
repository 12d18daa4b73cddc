"""Archives of Python source: packed by the client, checked by the server, unpacked in the sandbox; none is run here.

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

from pt2hub.archive.reading import Archive
from pt2hub.archive.sources import opened_file
from pt2hub.archive.validating import Entry, Limits, shown, validate
from pt2hub.archive.writing import ZipEncoder, write_pieces
from pt2hub.errors import BadCodeArchive, CorruptArchive, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pt2hub.archive.sources import ByteSource

LIMITS = Limits(members=10_000, total=256 << 20, directory=4 << 20)
"""How much code may be: source text is far below, and data belongs into the weights."""
_DEEPEST = 32
_LONGEST_PART = 255
"""Bytes of a file's own name, as the usual file systems take them."""
_LEFT_OUT = (".*", "__pycache__", "CVS", "*.pyc", "*.pyo", "*.egg-info")
"""Names that are no part of the code: hidden files, what git, hg and svn keep, and what Python and pip write."""
_ENVIRONMENT = "pyvenv.cfg"
"""What marks a virtual environment."""
_WHERE = "source.code"
_PACK = "`pt2hub publish --code FOLDER` packs a folder of Python files so that it is taken."
_SMALLER = "Name a folder that holds the model's code and nothing else."


def pack_code(folder: Path, out: Path) -> int:
    """Packs a folder's files; equal folders give equal bytes.

    Hidden files, byte code, version control and virtual environments stay out.

    Args:
        folder: What its files import each other from.
        out: The archive, replaced where it exists.

    Returns:
        How many files it holds.

    Raises:
        NotFound: There is no such folder.
        BadCodeArchive: It holds no Python file, too much, a link that leads out of it, or what is no file;
            `where` names the file.
    """
    if not folder.is_dir():
        raise NotFound(
            "It is a file" if folder.exists() else "There is no such folder",
            where=str(folder),
            hint="Name the folder that the model's code is imported from.",
        )
    files = sorted(_files(folder, folder.resolve()))
    names = [file.relative_to(folder).as_posix() for file in files]
    with _explained(str(folder), hint=_SMALLER):
        _check_names(names)
        _check_amount(files)
        write_pieces(out, _packed(zip(names, files, strict=True)))
    return len(files)


def check_code(source: Path | ByteSource) -> list[str]:
    """Checks an archive's names and sizes, and runs and extracts nothing of it; its bytes are checked on unpacking.

    Args:
        source: The archive.

    Returns:
        The members' names, sorted.

    Raises:
        BadCodeArchive: It is damaged, too large, without a Python file, or a member is none that becomes a file
            below the archive's folder: an absolute name, `..`, a backslash, a link, the same name twice, encrypted.
    """
    with _explained(_WHERE, hint=_PACK), opened_file(source) as file:
        return sorted(entry.name for entry in _checked(file))


def unpack_code(path: Path, into: Path) -> None:
    """Writes an archive's files, after the checks of `check_code`.

    Args:
        path: The archive.
        into: A folder, new or empty.

    Raises:
        BadCodeArchive: As for `check_code`, or a member's bytes are damaged.
    """
    with _explained(_WHERE, hint=_PACK), path.open("rb") as file:
        _checked(file)
        archive = Archive(file, limits=LIMITS)
        into.mkdir(parents=True, exist_ok=True)
        for entry in archive.entries:
            out = into / entry.name
            out.parent.mkdir(parents=True, exist_ok=True)
            with out.open("xb") as written:
                written.writelines(archive.chunks(entry))


def _files(folder: Path, root: Path) -> Iterator[Path]:
    """Every file that is packed, links among them already followed and found to stay inside."""
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
            yield _followed(path, root)
        elif stat.S_ISREG(mode):
            yield path
        elif stat.S_ISDIR(mode):
            yield from _files(path, root)
        else:
            raise BadCodeArchive("It is neither a file nor a folder", where=_named(path), hint=_SMALLER)


def _followed(path: Path, root: Path) -> Path:
    with _readable(path):
        target = Path(os.path.realpath(path))
    if not target.is_relative_to(root):
        raise BadCodeArchive(
            "The link leads out of the folder",
            where=_named(path),
            hint="Copy the file that it names to there.",
        )
    if not target.is_file():
        raise BadCodeArchive(
            "The link leads to no file", where=_named(path), hint="Delete it, or put the folder itself there."
        )
    return path


def _check_amount(files: Sequence[Path]) -> None:
    if len(files) > LIMITS.members:
        raise BadCodeArchive(f"the folder holds more than {LIMITS.members} files")
    if sum(map(_size, files)) > LIMITS.total:
        raise BadCodeArchive(f"its files have more than {LIMITS.total >> 20} MiB")


def _size(file: Path) -> int:
    with _readable(file):
        return file.stat().st_size


def _packed(files: Iterable[tuple[str, Path]]) -> Iterator[bytes]:
    encoder = ZipEncoder()
    for name, file in files:
        with _readable(file):
            data = file.read_bytes()
        yield from encoder.whole(name, data)
    yield from encoder.end()


def _checked(file: BinaryIO) -> tuple[Entry, ...]:
    entries = validate(file, limits=LIMITS)
    _check_names([entry.name for entry in entries])
    return entries


def _check_names(names: Sequence[str]) -> None:
    if not any(name.endswith(".py") for name in names):
        raise BadCodeArchive("it holds no Python file")
    spelled: dict[str, str] = {}
    for name in names:
        parts = name.split("/")
        if len(parts) > _DEEPEST:
            raise _refused(name, f"it lies more than {_DEEPEST} folders deep")
        if _undecodable(name):
            raise _refused(name, "its name is no UTF-8")
        if any(len(part.encode()) > _LONGEST_PART for part in parts):
            raise _refused(name, f"a part of its name is longer than {_LONGEST_PART} bytes")
        for count in range(1, len(parts) + 1):
            path = "/".join(parts[:count])
            if (other := spelled.setdefault(_folded(path), path)) != path:
                raise _refused(name, f"on some systems its name is that of {shown(other)}")


def _undecodable(name: str) -> bool:
    """Whether a file's name came as bytes that are no UTF-8, which Python keeps as lone surrogates."""
    return any("\ud800" <= letter <= "\udfff" for letter in name)


def _folded(path: str) -> str:
    """What two names have in common that a file system without case, or one that composes accents, takes for one."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def _refused(name: str, problem: str) -> BadCodeArchive:
    return BadCodeArchive(f"{shown(name)}: {problem}")


@contextmanager
def _explained(where: str, *, hint: str) -> Iterator[None]:
    """What the parser and the rules above object to, as one kind of error with a place and with what to do next."""
    try:
        yield
    except CorruptArchive as error:
        message = f"{error.where}: {error.message}" if error.where else error.message
        raise BadCodeArchive(f"The code cannot be taken: {message}", where=where, hint=hint) from error
    except BadCodeArchive as error:
        if error.where:  # a file of the user's, said already
            raise
        raise BadCodeArchive(
            f"The code cannot be taken: {error.message}", where=where, hint=hint, details=error.details
        ) from error


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadCodeArchive(
            f"It cannot be read: {error.strerror or error}",
            where=_named(path),
            hint="Make it readable, or delete it.",
        ) from error


def _named(path: Path) -> str:
    return shown(str(path))
