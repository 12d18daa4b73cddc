"""Digest of all code loaded into this process that the toolchain's versions do not identify.

It stands for code that is only a name in the graph and whose content cannot be read, such as the kernel of an operator
from a C++ library: such code is in the uploaded source, in an installed distribution or in a file that this process has
loaded.
"""

from __future__ import annotations

import base64
import functools
import importlib.metadata
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub.domain.digests import Digest, digest_bytes, digest_file, digest_json, hex_of
from pt2hub_workers.inside.builds.key import own_code
from pt2hub_workers.inside.builds.key.global_names import NoDigest

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAPS = Path("/proc/self/maps")
_QUOTE = '"'
_FIRST_PATH = 5
"""Number of fields before a mapping's path."""


@dataclass(frozen=True, slots=True)
class _InstalledFile:
    """An installed file of a distribution.

    Attributes:
        name: Name and version of the distribution.
        digest: Digest of the distribution's RECORD.
        recorded: The file's hash in RECORD; empty if it has none.
    """

    name: str
    digest: str
    recorded: str

    def is_unchanged(self, path: Path) -> bool:
        """Return whether the file is unchanged since it was installed."""
        algorithm, _, text = self.recorded.partition("=")
        if algorithm != "sha256":
            return False
        return (
            base64.urlsafe_b64encode(bytes.fromhex(hex_of(Digest(_digest(path))))).rstrip(b"=").decode()
            == text
        )


def digest_loaded_code(source: dict[str, Any], root: Path) -> str:
    """Digest the source, and the distributions and files that this process has loaded.

    Raises:
        NoDigest: A loaded file cannot be read.
    """
    named: dict[str, str] = {}
    for path in sorted({*_modules(), *_libraries()}):
        if path.is_relative_to(root) or own_code.is_own_file(str(path)):
            continue
        owned = _owners().get(str(path))
        if owned is not None:
            named[owned.name] = owned.digest
        if owned is None or not owned.is_unchanged(
            path
        ):  # part of no distribution, or changed since it was installed
            named[f"file {path.name} {_digest(path)}"] = ""
    return digest_json({"source": source, "python": sys.version, "loaded": named})


def _modules() -> Iterator[Path]:
    for name, module in sys.modules.copy().items():
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and not own_code.is_own_module(name.partition(".")[0]):
            yield Path(file).resolve()


def _libraries() -> Iterator[Path]:
    """Yield the executable files that are mapped into this process."""
    try:
        lines = _MAPS.read_text().splitlines()
    except OSError as error:
        raise NoDigest(f"{_MAPS} cannot be read") from error
    for line in lines:
        fields = line.split(maxsplit=_FIRST_PATH)
        if len(fields) > _FIRST_PATH and "x" in fields[1] and fields[-1].startswith("/"):
            yield Path(fields[-1])


@functools.cache
def _owners() -> dict[str, _InstalledFile]:
    """Return the owner of each installed code file, by path."""
    owners: dict[str, _InstalledFile] = {}
    for item in importlib.metadata.distributions():
        record = item.read_text("RECORD")
        folder = os.path.realpath(str(item.locate_file("")))
        lines = [
            line for line in (record or "").splitlines() if ".pyc," not in line and ".dist-info/" not in line
        ]
        if lines and not own_code.is_own_file(f"{folder}/{lines[0].partition(',')[0]}"):
            digest = digest_json([item.version, digest_bytes("\n".join(sorted(lines)).encode())])
            name = f"distribution {item.name} {item.version}"
            for line in lines:
                front, recorded, _ = line.rsplit(",", 2) if line.count(",") > 1 else (line, "", "")
                owners[f"{folder}/{front.strip(_QUOTE)}"] = _InstalledFile(name, digest, recorded)
    return owners


def _digest(path: Path) -> str:
    try:
        return digest_file(path)
    except OSError as error:
        raise NoDigest(f"{path.name} cannot be read") from error
