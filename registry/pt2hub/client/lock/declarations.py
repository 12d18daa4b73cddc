"""Declared references: `[tool.pt2hub]` in the project's pyproject.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub.client.lock.lock_file import LOCK_NAME
from pt2hub.domain.names import Reference
from pt2hub.errors import Detail, InvalidInput

if TYPE_CHECKING:
    from pt2hub.domain.locks import Lock

PROJECT_NAME = "pyproject.toml"
_HINT = 'Write [tool.pt2hub] with models = ["vision/resnet18@prod"], and optionally targets = [...].'
_FIELDS = ("models", "targets")


@dataclass(frozen=True, slots=True)
class Declaration:
    """The references that a project declares.

    Attributes:
        file: The file.
        models: The references, sorted.
        targets: The only targets to lock, sorted; empty for all.
    """

    file: Path
    models: tuple[str, ...]
    targets: tuple[str, ...]

    def differences(self, lock: Lock) -> tuple[Detail, ...]:
        """Return how a lock differs from what is declared; empty if it is up to date."""
        declared, locked = set(self.models), set(lock.references)
        found = [Detail(name, "is declared and not locked") for name in sorted(declared - locked)]
        found += [Detail(name, "is locked and no longer declared") for name in sorted(locked - declared)]
        if self.targets and self.targets != tuple(sorted(lock.targets)):
            locked_targets = ", ".join(sorted(lock.targets)) or "all targets"
            found.append(
                Detail(
                    "targets", "differ", given=", ".join(self.targets), allowed=f"{locked_targets} are locked"
                )
            )
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Project:
    """A lock file and what declares its references.

    Attributes:
        lock: Path of the lock file, which may not exist yet.
        declaration: None if the lock file itself says which references are locked.
    """

    lock: Path
    declaration: Declaration | None

    @classmethod
    def find(cls, lock: Path | None = None) -> Project:
        """Find the project of a lock file, or of this directory.

        Without a path it is the nearest directory, upwards, with a lock file or a declaration; else this one.

        Raises:
            InvalidInput: The declaration is malformed.
        """
        if lock is not None:
            return cls(lock, read_declaration(lock.absolute().parent / PROJECT_NAME))
        here = Path.cwd()
        for folder in (here, *here.parents):
            declaration = read_declaration(folder / PROJECT_NAME)
            if declaration or (folder / LOCK_NAME).is_file():
                return cls(folder / LOCK_NAME, declaration)
        return cls(here / LOCK_NAME, None)


def read_declaration(path: Path) -> Declaration | None:
    """Read what a pyproject.toml declares; None if there is no file, or none of its tables is ours.

    Raises:
        InvalidInput: The table is malformed.
    """
    try:
        tools = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {})
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as exc:
        raise InvalidInput(f"Cannot read the file: {exc}", where=str(path), hint="Correct the file.") from exc
    if not isinstance(tools, dict) or "pt2hub" not in tools:
        return None
    faults = _find_faults(tools["pt2hub"])
    if faults:
        raise InvalidInput(
            "The declared references are invalid",
            where=f"{path}: tool.pt2hub",
            hint=_HINT,
            details=tuple(faults),
        )
    table: dict[str, list[str]] = tools["pt2hub"]
    return Declaration(path, *(tuple(sorted(set(table.get(name, ())))) for name in _FIELDS))


def _find_faults(table: Any) -> list[Detail]:
    if not isinstance(table, dict):
        return [Detail("tool.pt2hub", "must be a table")]
    faults = [Detail(name, "is unknown", allowed=", ".join(_FIELDS)) for name in table if name not in _FIELDS]
    for name in _FIELDS:
        values = table.get(name, [])
        if not isinstance(values, list) or not all(isinstance(item, str) for item in values):
            faults.append(Detail(name, "must be an array of texts", given=repr(values)[:80]))
        elif name == "models":
            faults += [
                fault for index, item in enumerate(values) if (fault := _fault_of_reference(item, index))
            ]
    if not faults and not table.get("models"):
        faults.append(Detail("models", "is missing or empty"))
    return faults


def _fault_of_reference(text: str, index: int) -> Detail | None:
    try:
        Reference.parse(text)
    except InvalidInput as exc:
        return Detail(f"models[{index}]", exc.message, given=text[:80])
    return None
