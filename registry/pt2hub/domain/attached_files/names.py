"""Names of attached files: plain names that are the same on every system."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from pt2hub.domain.artifacts import CODE_NAME, WEIGHTS_NAME
from pt2hub.errors import DuplicateFile, InvalidFileName, TooManyFiles

if TYPE_CHECKING:
    from collections.abc import Collection

MAX_FILES = 64
MAX_NAME_CHARS = 128
MAX_NAME_BYTES = 255
_FORBIDDEN = frozenset('/\\:*?"<>|')
_RESERVED = frozenset({CODE_NAME, WEIGHTS_NAME, "model.pt2"})
"""Names of an artifact's own files."""
_DEVICES = frozenset(
    {
        "con",
        "prn",
        "aux",
        "nul",
        "conin$",
        "conout$",
        *(f"{name}{n}" for name in ("com", "lpt") for n in range(1, 10)),
    }
)
"""Names that Windows reserves, with any suffix."""
_NAME_HINT = "Use a plain name without folders, such as tokenizer.json."


def check_name(name: str) -> str:
    """Return the name of a file if it is the same plain name on every system.

    Raises:
        InvalidFileName: It is not.
    """
    if problem := _find_problem(name):
        raise InvalidFileName(
            f"Invalid file name {show_name(name)}: {problem}", where=f"files.{name[:80]}", hint=_NAME_HINT
        )
    return name


def check_names(names: Collection[str]) -> None:
    """Check that files can lie beside each other on every system.

    Raises:
        DuplicateFile: Two names are equal, or differ in upper and lower case or in their form of Unicode only.
        TooManyFiles: There are more than `MAX_FILES`.
    """
    if len(names) > MAX_FILES:
        raise TooManyFiles(
            f"{len(names)} files are attached, at most {MAX_FILES} are allowed",
            where="files",
            hint="Pack those that are used together into one archive.",
        )
    seen: dict[str, str] = {}
    for name in names:
        key = _key(name)
        if key in seen:
            raise _duplicate(name, seen[key])
        seen[key] = name


def _key(name: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def _duplicate(name: str, other: str) -> DuplicateFile:
    same = "is given twice" if other == name else f"and {show_name(other)} are the same name on some systems"
    return DuplicateFile(
        f"File name {show_name(name)} {same}", where=f"files.{name[:80]}", hint="Rename one of them."
    )


def _find_problem(name: str) -> str | None:
    """Return what is wrong with a name, or None."""
    if not name or len(name) > MAX_NAME_CHARS or len(name.encode(errors="replace")) > MAX_NAME_BYTES:
        return f"it must have 1 to {MAX_NAME_CHARS} characters, and at most {MAX_NAME_BYTES} bytes"
    if found := next((char for char in name if char in _FORBIDDEN or not _is_plain(char)), None):
        shown = repr(found) if found in _FORBIDDEN else f"the character U+{ord(found):04X}"
        return f"{shown} is not allowed" + (", names have no folders" if found in "/\\" else "")
    if unicodedata.normalize("NFC", name) != name:
        return "it is not in Unicode's normal form NFC"
    if name[0] in ".-" or name[-1] == ".":
        return "it must not begin with a dot or a dash, nor end with a dot"
    if name != name.strip():
        return "it must not begin or end with a space"
    if _key(name.partition(".")[0]).rstrip() in _DEVICES:  # where COM¹ is COM1
        return "Windows reserves it for a device"
    return "an artifact's own file has this name" if _key(name) in _RESERVED else None


def _is_plain(char: str) -> bool:
    """Return whether a character is visible, or a space."""
    return char == " " or unicodedata.category(char)[0] not in "CZ"


def show_name(name: str) -> str:
    """Return a name as it can be printed anywhere."""
    return ascii(name if len(name) <= MAX_NAME_CHARS else f"{name[:60]}...")
