"""Debug logs of artifacts in API responses."""

from __future__ import annotations

from dataclasses import dataclass

from pt2hub.domain.digests import Digest
from pt2hub.renderable import Renderable


@dataclass(frozen=True, slots=True)
class DebugLog:
    """A recorded debug log.

    Attributes:
        kind: `output_code`, `fusion`, `schedule` or `graph`.
        bytes: Its size.
    """

    kind: str
    bytes: int


@dataclass(frozen=True, slots=True, repr=False)
class DebugLogsView(Renderable):
    """Torch's logs of the compile of an artifact's code.

    Attributes:
        artifact: Digest of the artifact.
        model: Name of the model.
        number: Number of the version.
        target: The target's name.
        compiled_for: Digest of the artifact that the code was compiled for; another one if the code is reused.
        logs: The recorded logs.
    """

    artifact: Digest
    model: str
    number: int
    target: str
    compiled_for: Digest
    logs: tuple[DebugLog, ...]


@dataclass(frozen=True, slots=True, repr=False)
class DebugLogView(Renderable):
    """One of torch's logs of the compile of an artifact's code.

    Attributes:
        artifact: Digest of the artifact.
        model: Name of the model.
        number: Number of the version.
        target: The target's name.
        compiled_for: Digest of the artifact that the code was compiled for; another one if the code is reused.
        kind: `output_code`, `fusion`, `schedule` or `graph`.
        text: The log; its last line says so if it was cut.
    """

    artifact: Digest
    model: str
    number: int
    target: str
    compiled_for: Digest
    kind: str
    text: str
