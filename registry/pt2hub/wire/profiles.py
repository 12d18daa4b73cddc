"""Profiles of calls in API responses: an artifact beside torch.compile, each kernel with its origin."""

from __future__ import annotations

from dataclasses import dataclass

from pt2hub.domain.digests import Digest
from pt2hub.domain.performance.profiles import Profile, ProfileRow
from pt2hub.renderable import Renderable


@dataclass(frozen=True, slots=True)
class ModelLine:
    """A line of the model that a kernel computes.

    Attributes:
        line: The line (`model.py:12`); empty where it is not known.
        operations: Names of the exported graph's nodes; without a line, the compiler's names.
    """

    line: str
    operations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """A place in the generated sources.

    Attributes:
        file: Name of the file.
        line: Number of the line, from 1.
    """

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class ProfileRowView:
    """An operation or kernel in the traced calls.

    Attributes:
        name: The profiler's name for it. Each compile numbers its kernels, so an equal name may be another kernel of
            torch.compile.
        artifact: As the artifact's calls ran it; None if they did not.
        torch_compile: As torch.compile's calls ran it; None if they did not, or were not profiled.
        kernel: Name of the kernel in the record of the artifact's kernels; None if it is not there.
        lines: Lines of the model that the kernel computes.
        source: Where the generated sources define the kernel or call it first; None if they do not.
    """

    name: str
    artifact: ProfileRow | None = None
    torch_compile: ProfileRow | None = None
    kernel: str | None = None
    lines: tuple[ModelLine, ...] = ()
    source: SourcePlace | None = None


@dataclass(frozen=True, slots=True, repr=False)
class ProfileView(Renderable):
    """Where the time of an artifact's calls goes, beside torch.compile's.

    Attributes:
        digest: Digest of the artifact.
        model: Name of the model.
        number: Number of the version.
        target: The target's name.
        artifact: Profile of the artifact's calls, without its rows.
        torch_compile: Profile of torch.compile's calls, without its rows; None if they were not profiled.
        rows: Rows of both, those that take longest in a call of either first.
    """

    digest: Digest
    model: str
    number: int
    target: str
    artifact: Profile
    torch_compile: Profile | None
    rows: tuple[ProfileRowView, ...]
