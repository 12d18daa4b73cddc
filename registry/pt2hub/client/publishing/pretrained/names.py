"""How pretrained weights are named."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

from pt2hub.errors import WeightsUnavailable

WHERE = "weights"
"""The field of a spec that the errors are about."""
FORMS = (
    "Write torchvision:ResNet18_Weights.DEFAULT or hf:team/name@revision; a file of such a name is ./hf:name."
)
_SCHEME = re.compile(r"(torchvision|hf):")
_TORCHVISION = re.compile(r"torchvision:(\w+\.\w+)")
_HUB = re.compile(
    r"hf:(?P<repository>[\w.-]+(?:/[\w.-]+)?)(?:@(?P<revision>[^\s@#]+))?(?:#(?P<file>[^\s#]+))?"
)
_LONGEST = 250
"""With a commit in the revision's place the pinned name still fits into `weights_from`."""


@dataclass(frozen=True, slots=True)
class TorchvisionName:
    """Weights of torchvision.

    Attributes:
        member: Enumeration and member, `ResNet18_Weights.DEFAULT`.
    """

    member: str

    def __str__(self) -> str:
        return f"torchvision:{self.member}"


@dataclass(frozen=True, slots=True)
class HubName:
    """Weights in a repository of the hub.

    Attributes:
        repository: `team/name`.
        revision: A branch, a tag or a commit; None for the repository's main branch.
        file: The file; None for what such repositories call it.
    """

    repository: str
    revision: str | None = None
    file: str | None = None

    def __str__(self) -> str:
        revision = f"@{self.revision}" if self.revision else ""
        return f"hf:{self.repository}{revision}{f'#{self.file}' if self.file else ''}"


@dataclass(frozen=True, slots=True)
class FetchedWeights:
    """Weights that are here now.

    Attributes:
        pinned: The name of these very bytes.
    """

    path: Path
    pinned: str


def is_name(value: object) -> TypeGuard[str]:
    """Return whether a value names weights, well or badly; paths that begin with `./` or `/` never do."""
    return isinstance(value, str) and bool(_SCHEME.match(value))


def may_contain_name(document: bytes) -> bool:
    """Return whether a document may hold such a name; what says no need not be read."""
    return any(scheme in document for scheme in (b"torchvision:", b"hf:"))


def parse(text: str) -> TorchvisionName | HubName:
    """Read a name.

    Raises:
        WeightsUnavailable: It has neither form.
    """
    if len(text) <= _LONGEST:
        if found := _TORCHVISION.fullmatch(text):
            return TorchvisionName(found[1])
        if found := _HUB.fullmatch(text):
            return HubName(found["repository"], found["revision"], found["file"])
    raise WeightsUnavailable(f"Invalid weights name {text[:_LONGEST]!r}", where=WHERE, hint=FORMS)
