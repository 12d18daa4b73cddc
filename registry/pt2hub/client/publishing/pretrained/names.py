"""Names of pretrained weights."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

from pt2hub.errors import WeightsUnavailable

WHERE = "weights"
"""Field of the spec that errors name."""
FORMS = "Write torchvision:ResNet18_Weights.DEFAULT or hf:team/name@revision; write a file with such a name as ./hf:name."
_SCHEME = re.compile(r"(torchvision|hf):")
_TORCHVISION = re.compile(r"torchvision:(\w+\.\w+)")
_HUB = re.compile(
    r"hf:(?P<repository>[\w.-]+(?:/[\w.-]+)?)(?:@(?P<revision>[^\s@#]+))?(?:#(?P<file>[^\s#]+))?"
)
_LONGEST = 250
"""With a commit in the revision's place the pinned name still fits into `weights_from`."""


@dataclass(frozen=True, slots=True)
class TorchvisionName:
    """Weights from torchvision.

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
    """Downloaded weights.

    Attributes:
        pinned: The name of these very bytes.
    """

    path: Path
    pinned: str


def is_name(value: object) -> TypeGuard[str]:
    """Return whether a value is meant as a weights name, valid or not; paths that begin with `./` or `/` are not."""
    return isinstance(value, str) and bool(_SCHEME.match(value))


def may_contain_name(document: bytes) -> bool:
    """Return whether a document may contain a weights name; otherwise it need not be parsed."""
    return any(scheme in document for scheme in (b"torchvision:", b"hf:"))


def parse(text: str) -> TorchvisionName | HubName:
    """Parse a weights name.

    Raises:
        WeightsUnavailable: It has neither form.
    """
    if len(text) <= _LONGEST:
        if found := _TORCHVISION.fullmatch(text):
            return TorchvisionName(found[1])
        if found := _HUB.fullmatch(text):
            return HubName(found["repository"], found["revision"], found["file"])
    raise WeightsUnavailable(f"Invalid weights name {text[:_LONGEST]!r}", where=WHERE, hint=FORMS)
