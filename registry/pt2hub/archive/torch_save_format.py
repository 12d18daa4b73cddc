"""Format of torch.export.save files (torch 2.11 to 2.13) and the accepted members."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING
from zipfile import BadZipFile, ZipFile

from pt2hub.archive.payloads import SAVE_AGAIN
from pt2hub.archive.zip.validation import printable_name
from pt2hub.errors import BadProgram, CorruptArchive, NotFound

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from pt2hub.archive.zip.reader import Archive

WHERE = "source.program"
MODEL = "models/model.json"
WEIGHTS, CONSTANTS = "data/weights/", "data/constants/"
WEIGHTS_CONFIG = f"{WEIGHTS}model_weights_config.json"
CONSTANTS_CONFIG = f"{CONSTANTS}model_constants_config.json"
SAMPLES = "data/sample_inputs/model.pt"
FIXED = {
    ".data/version": (b"6", b"6\n"),
    "archive_format": (b"pt2",),
    "archive_version": (b"0",),
    "byteorder": (b"little",),
}
"""Members with fixed content (torch 2.11 to 2.13); the first alternative is the one written here."""
_DROPPED = re.compile(r"extra/.*|\.data/serialization_id|data/sample_inputs/model\.pt")
"""Members that loading does not need: notes, a random number, and the pickled example inputs."""
_PARTS = re.compile(rf"{WEIGHTS}weight_\d+|{CONSTANTS}tensor_\d+")


_FOREIGN = (
    (
        re.compile(r"(?:[^/]+/)?(?:constants\.pkl|code/__torch__.*)"),
        "the file is a TorchScript archive: torch.jit wrote it, not torch.export.save",
        "Export the Python model with torch.export.export, and save that with torch.export.save.",
    ),
    (
        re.compile(r"(?:[^/]+/)?data\.pkl"),
        "torch.save wrote the file, not torch.export.save",
        "Save the result of torch.export.export. Save weights alone to a safetensors file, and publish with it.",
    ),
)
"""Members that identify torch's other file types; TorchScript files also contain `data.pkl`."""
_AGAIN_NEWER = "Save it again with torch.export.save of torch 2.11 or newer."
_REFUSED = (
    (r"models/(?!model\.json$).*", "several programs, or one with another name", SAVE_AGAIN),
    (
        r"data/aotinductor/.*",
        "compiled code, not only a program",
        "Save the ExportedProgram with torch.export.save; pt2hub compiles it.",
    ),
    (
        r"data/executorch/.*",
        "ExecuTorch data, which is not supported",
        "Save the ExportedProgram with torch.export.save.",
    ),
    (r"data/(?:weights|constants)/model\.pt", "pickled weights of an older torch", _AGAIN_NEWER),
    (
        r"data/constants/(?:custom|opaque)_obj_.*",
        "a pickled object, which can run code when it is read",
        "The model keeps a TorchScript class or an opaque value among its attributes: export it without.",
    ),
)
"""Refused members of saved programs, each with its meaning and a hint."""


def _check_origin(names: Collection[str]) -> None:
    for known, what, hint in _FOREIGN:
        if any(map(known.fullmatch, names)):
            raise BadProgram(what, hint=hint)


def check_readable(file: Path) -> None:
    """Refuse a missing file, or a file of torch that is not a saved program.

    Raises:
        NotFound: There is none, it is a folder, or it cannot be read.
        BadProgram: The file is from torch.save or TorchScript; the parser would call it damaged.
    """
    try:
        with file.open("rb") as opened, ZipFile(opened) as archive:
            # A program cut short ends with its example inputs, an archive of torch.save's that begins later.
            if not min((member.header_offset for member in archive.infolist()), default=0):
                _check_origin(archive.namelist())
    except (BadZipFile, ValueError, NotImplementedError):
        return  # the parser says what is wrong
    except OSError as error:
        raise NotFound(
            f"The program cannot be read: {error.strerror or error}",
            where=str(file),
            hint="Pass a file written by torch.export.save.",
        ) from error


def root_of(archive: Archive) -> str:
    """Return a saved program's top-level folder, with a trailing slash.

    Raises:
        BadProgram: The archive is something else.
    """
    roots = {entry.name.partition("/")[0] for entry in archive.entries}
    names = {entry.name for entry in archive.entries}
    _check_origin(names)
    if "serialized_exported_program.json" in names:
        raise BadProgram("the file was saved by an old torch, which pickled weights", hint=_AGAIN_NEWER)
    if len(roots) != 1 or (root := f"{roots.pop()}/") + "archive_format" not in names:
        raise BadProgram("the file is not an exported program", hint=SAVE_AGAIN)
    return root


def check_saved(archive: Archive, root: str) -> None:
    """Refuse a saved program with an unsupported member.

    Raises:
        BadProgram: The message names the member, the hint how to save without it.
    """
    known = {MODEL, WEIGHTS_CONFIG, CONSTANTS_CONFIG, *FIXED}
    for entry in archive.entries:
        name = entry.name.removeprefix(root)
        for pattern, what, hint in _REFUSED:
            if re.fullmatch(pattern, name):
                raise BadProgram(f"{printable_name(name)} is {what}", hint=hint)
        if name not in known and not _DROPPED.fullmatch(name) and not _PARTS.fullmatch(name):
            raise BadProgram(f"{printable_name(name)} is not part of an exported program", hint=SAVE_AGAIN)
    check_fixed(archive, root)


def check_fixed(archive: Archive, root: str) -> None:
    """Refuse other versions of the format, and other byte orders.

    Raises:
        BadProgram: A member of `FIXED` has other contents.
    """
    names = {entry.name for entry in archive.entries}
    for name, contents in FIXED.items():
        if f"{root}{name}" in names and archive.read(f"{root}{name}") not in contents:
            raise BadProgram(
                f"{printable_name(name)} has an unknown version or byte order",
                hint=SAVE_AGAIN,
            )


@contextmanager
def translate_errors(where: str = WHERE) -> Iterator[None]:
    """Translate the parser's errors to errors about the program at `where`."""
    try:
        yield
    except CorruptArchive as error:
        place = f"{error.where}: " if error.where else ""
        raise BadProgram(
            f"the file is damaged or not a zip: {place}{error.message}", where=where, hint=SAVE_AGAIN
        ) from error
    except RecursionError as error:
        raise BadProgram("the program is nested too deeply", where=where, hint=SAVE_AGAIN) from error
    except BadProgram as error:
        raise BadProgram(error.message, where=error.where or where, hint=error.hint) from error


__all__ = [
    "CONSTANTS",
    "CONSTANTS_CONFIG",
    "FIXED",
    "MODEL",
    "SAMPLES",
    "WEIGHTS",
    "WEIGHTS_CONFIG",
    "check_fixed",
    "check_readable",
    "check_saved",
    "root_of",
    "translate_errors",
]
