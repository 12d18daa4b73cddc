"""The two levels at which children are started: `sandbox`, in bubblewrap, and `process`, which confines nothing."""

from __future__ import annotations

import contextlib
import os
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pt2hub.errors import BadConfiguration
from pt2hub_workers.inside.shortage import OWN_MEMORY
from pt2hub_workers.sandbox import devices, seccomp
from pt2hub_workers.sandbox.environment import confined, without_secrets
from pt2hub_workers.sandbox.limits import Bounds, Limits
from pt2hub_workers.sandbox.paths import SYSTEM, is_below
from pt2hub_workers.sandbox.profile import INSIDE, Profile
from pt2hub_workers.sandbox.starting import Command, begin, finish

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from pt2hub.domain.digests import Digest
    from pt2hub_workers.sandbox.starting import Room, Started

Level = Literal["sandbox", "process"]
PROBE_SECONDS = 300.0
"""How long the toolchain's probe may take: a first import of torch from a slow disk."""


class Launcher(ABC):
    """Starts the processes in which users' code runs, all at one level.

    Attributes:
        level: `sandbox` or `process`; every artifact's provenance names it.
        limits: What one child may use.
        reason: Why it is not a sandbox, where one was preferred.
    """

    level: ClassVar[Level]
    limits: Limits
    reason: str | None

    @property
    @abstractmethod
    def profile(self) -> Digest | None:
        """The digest of what confines the children; None at the level `process`."""

    @property
    @abstractmethod
    def document(self) -> dict[str, Any]:
        """What confines the children, as JSON values."""

    @property
    @abstractmethod
    def inside(self) -> Path | None:
        """Where a child sees its room; None where it sees it as the worker does."""

    @abstractmethod
    def keep_private(self, paths: Mapping[str, Path]) -> None:
        """Refuses to give children to read what must not be theirs.

        Args:
            paths: The worker's own directories, by the setting that names each.

        Raises:
            BadConfiguration: One of them lies in a directory that every child can read.
        """

    @abstractmethod
    def for_device(self, device: str) -> Launcher:
        """The launcher of children that work on a device.

        Args:
            device: `cpu`, or a GPU's UUID: only its nodes are there for the child.

        Raises:
            SandboxUnavailable: The GPU's nodes are not known.
        """

    @abstractmethod
    def _command(
        self, argv: Sequence[str], environ: Mapping[str, str], room: Path | None
    ) -> AbstractContextManager[Command]:
        """What is really started for a program."""

    def start(self, role: str, *, environ: Mapping[str, str], room: Room | None) -> Started:
        """Starts a child of `pt2hub_workers.inside.child`.

        Args:
            role: What it does, as `inside.child` knows it.
            environ: Its whole environment, without the channel.
            room: Its room, which must be there before it; None for a child without one.
        """
        argv = [sys.executable, "-m", "pt2hub_workers.inside.child", role]
        told = {"PYTHONUNBUFFERED": "1", OWN_MEMORY: str(self.limits.memory_bytes)}
        return self.run(argv, environ={**environ, **told}, room=room, name=role)

    def run(
        self, argv: Sequence[str], *, environ: Mapping[str, str], room: Room | None, name: str = "child"
    ) -> Started:
        """Starts a program.

        Args:
            argv: Program and arguments, as they are inside.
            environ: Its whole environment, without the channel.
            room: Its room; None for a child without one.
            name: Of the child, for people.
        """
        host = room.host if room else None
        bounds = Bounds(self.limits, room=host, name=name)
        return begin(
            lambda channel: self._command(argv, {**environ, **channel}, host),
            bounds,
            sandboxed=self.level == "sandbox",
        )

    def run_probe(self, environ: Mapping[str, str], target: str) -> bytes:
        """Runs the toolchain's probe and returns what it printed.

        Args:
            environ: Its whole environment.
            target: The target that is wanted, or `auto`.

        Raises:
            subprocess.CalledProcessError: It failed; its standard error is passed on.
            subprocess.TimeoutExpired: It took longer than `PROBE_SECONDS`.
        """
        done = self.complete("pt2hub_workers.inside.probe", target, environ=environ, seconds=PROBE_SECONDS)
        sys.stderr.write(done.stderr.decode(errors="replace"))
        done.check_returncode()
        return done.stdout

    def complete(
        self, module: str, *arguments: str, environ: Mapping[str, str], seconds: float
    ) -> subprocess.CompletedProcess[bytes]:
        """Runs a module of ours to its end, without a room; it may use every device of the machine.

        Args:
            module: A Python module that runs no code of users.
            arguments: Of the module.
            environ: Its whole environment.
            seconds: Time limit.

        Raises:
            subprocess.TimeoutExpired: It took longer.
        """
        argv = [sys.executable, "-m", module, *arguments]
        with self._for_probes()._command(argv, environ, None) as command:  # noqa: SLF001  # of the same class
            return finish(command, seconds)

    def _for_probes(self) -> Launcher:
        return self


@dataclass(frozen=True, slots=True)
class ProcessLauncher(Launcher):
    """Children in a process group of their own, which see all that the worker's user sees."""

    level: ClassVar[Level] = "process"
    limits: Limits
    reason: str | None = None

    @property
    def profile(self) -> None:
        """None: nothing confines the children."""
        return None

    @property
    def document(self) -> dict[str, Any]:
        """The level alone."""
        return {"level": self.level}

    @property
    def inside(self) -> None:
        """None: children see their rooms as the worker does."""
        return None

    def keep_private(self, paths: Mapping[str, Path]) -> None:
        """Nothing is: children read what the worker reads."""
        del paths

    def for_device(self, device: str) -> ProcessLauncher:
        """Itself: every device is there for its children."""
        del device
        return self

    @contextlib.contextmanager
    def _command(
        self, argv: Sequence[str], environ: Mapping[str, str], room: Path | None
    ) -> Iterator[Command]:
        del room
        yield Command([*argv], without_secrets(environ))


@dataclass(frozen=True, slots=True)
class SandboxLauncher(Launcher):
    """Children in bubblewrap.

    Attributes:
        bwrap: The program.
        sandbox: What it builds.
        extra: Variables that every child gets.
    """

    level: ClassVar[Level] = "sandbox"
    limits: Limits
    bwrap: str
    sandbox: Profile
    extra: tuple[tuple[str, str], ...] = ()
    reason: str | None = None

    @property
    def profile(self) -> Digest:
        """The digest of the sandbox's profile."""
        return self.sandbox.digest

    @property
    def document(self) -> dict[str, Any]:
        """The sandbox's profile."""
        return self.sandbox.document()

    @property
    def inside(self) -> Path:
        """Where every child sees its room."""
        return INSIDE

    def keep_private(self, paths: Mapping[str, Path]) -> None:
        """Compares them with what is readable, by their real names."""
        for setting, path in paths.items():
            if is_below(path.resolve(), (*self.sandbox.readable, *SYSTEM)):
                raise BadConfiguration(
                    f"{path} lies in a directory that every build can read",
                    where=setting,
                    hint="Name one outside of the system's and Python's directories, of what PYTHONPATH and "
                    "LD_LIBRARY_PATH name, and of PT2HUB_SANDBOX_READABLE.",
                )

    def for_device(self, device: str) -> SandboxLauncher:
        """The launcher whose children have this GPU's nodes and no other's; `cpu` needs none."""
        if device == "cpu":
            return self
        gpu = devices.choose(device, devices.find_gpus())
        sandbox = replace(self.sandbox, devices=devices.nodes((gpu,)))
        return replace(self, sandbox=sandbox, extra=tuple(devices.visible(gpu).items()))

    def _for_probes(self) -> SandboxLauncher:
        return replace(self, sandbox=replace(self.sandbox, devices=devices.nodes(devices.find_gpus())))

    @contextlib.contextmanager
    def _command(
        self, argv: Sequence[str], environ: Mapping[str, str], room: Path | None
    ) -> Iterator[Command]:
        home = str(INSIDE / "tmp") if room else "/tmp"  # noqa: S108  # its own
        inner = confined({**environ, **dict(self.extra)}, home=home)
        options = self.sandbox.arguments(inner, room)
        with contextlib.ExitStack() as stack:
            keep = []
            for option, content in (
                ("--seccomp", seccomp.program()),
                ("--args", b"".join(os.fsencode(word) + b"\0" for word in options)),
            ):
                descriptor = seccomp.sealed(content, option)
                stack.callback(os.close, descriptor)
                keep += [option, descriptor]
            words = [self.bwrap, *map(str, keep), "--", *argv]
            # bubblewrap itself needs no environment; the child's is among the options, out of sight of `ps`.
            yield Command(words, {}, tuple(item for item in keep if isinstance(item, int)))
