"""Launcher of child processes at two isolation levels: `sandbox`, in bubblewrap, and `process`, unconfined."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from pt2hub.errors import BadConfiguration
from pt2hub_workers.inside.builds.shortage import OWN_MEMORY
from pt2hub_workers.sandbox import devices, seccomp
from pt2hub_workers.sandbox.environment import confine_variables, without_secrets
from pt2hub_workers.sandbox.limits import Bounds, Limits
from pt2hub_workers.sandbox.paths import SYSTEM, is_below
from pt2hub_workers.sandbox.process_start import Command, begin, finish
from pt2hub_workers.sandbox.sandbox_profile import INSIDE, Profile

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pt2hub.domain.digests import Digest
    from pt2hub_workers.sandbox.process_start import Mounts, Started

Level = Literal["sandbox", "process"]
PROBE_SECONDS = 300.0
"""Time limit of the toolchain's probe, enough for a first import of torch from a slow disk."""


@dataclass(frozen=True, slots=True)
class Launcher:
    """Starts the processes in which users' code runs, all at one isolation level.

    Attributes:
        bwrap: Path of bubblewrap; None at level `process`, at which children see all that the worker's user sees.
        sandbox: Profile of the sandbox; None at level `process`.
        extra: Additional variables of the children.
        reason: Why there is no sandbox although one was preferred.
    """

    limits: Limits
    bwrap: str | None = None
    sandbox: Profile | None = None
    extra: tuple[tuple[str, str], ...] = ()
    reason: str | None = None

    @property
    def level(self) -> Level:
        """Isolation level, recorded in every artifact's provenance."""
        return "sandbox" if self.sandbox else "process"

    @property
    def profile(self) -> Digest | None:
        """Digest of the sandbox profile; None at level `process`."""
        return self.sandbox.digest if self.sandbox else None

    @property
    def document(self) -> dict[str, Any]:
        """Sandbox profile as JSON values."""
        return self.sandbox.document() if self.sandbox else {"level": self.level}

    @property
    def inside(self) -> Path | None:
        """Path of the workspace as a child sees it; None if it is the worker's own path."""
        return INSIDE if self.sandbox else None

    def keep_private(self, paths: Mapping[str, Path]) -> None:
        """Check that sandboxed children cannot read private directories; without a sandbox they can read them.

        Raises:
            BadConfiguration: A private directory lies in one that every child can read.
        """
        readable = (*self.sandbox.readable, *SYSTEM) if self.sandbox else ()
        for setting, path in paths.items():
            if is_below(path.resolve(), readable):
                raise BadConfiguration(
                    f"{path} lies in a directory that every build can read",
                    where=setting,
                    hint="Set a directory outside of the system's and Python's directories, PYTHONPATH, LD_LIBRARY_PATH and "
                    "PT2HUB_SANDBOX_READABLE.",
                )

    def for_device(self, device: str) -> Launcher:
        """Return a launcher of children for a device.

        Args:
            device: `cpu`, or a GPU's UUID; a sandboxed child sees only that GPU's nodes.
        """
        if self.sandbox is None or device == "cpu":
            return self
        gpu = devices.choose(device, devices.find_gpus())
        sandbox = replace(self.sandbox, devices=devices.nodes((gpu,)))
        return replace(self, sandbox=sandbox, extra=tuple(devices.visible(gpu).items()))

    def start(self, role: str, *, environ: Mapping[str, str], workspace: Mounts | None) -> Started:
        """Start `pt2hub_workers.inside.child`, in its workspace if it has one."""
        argv = [sys.executable, "-m", "pt2hub_workers.inside.child", role]
        added = {"PYTHONUNBUFFERED": "1", OWN_MEMORY: str(self.limits.memory_bytes)}
        return self.run(argv, environ={**environ, **added}, workspace=workspace, name=role)

    def run(
        self,
        argv: Sequence[str],
        *,
        environ: Mapping[str, str],
        workspace: Mounts | None,
        name: str = "child",
    ) -> Started:
        """Start a program."""
        host = workspace.host if workspace else None
        return begin(
            lambda channel: self._command(argv, {**environ, **channel}, host),
            Bounds(self.limits, workspace=host, name=name),
            sandboxed=self.sandbox is not None,
        )

    def run_probe(self, environ: Mapping[str, str], target: str) -> bytes:
        """Run the toolchain's probe and return its output.

        Raises:
            subprocess.CalledProcessError: It failed; its standard error is passed on.
            subprocess.TimeoutExpired: It took longer than `PROBE_SECONDS`.
        """
        done = self.complete(
            "pt2hub_workers.inside.operations.probe", target, environ=environ, seconds=PROBE_SECONDS
        )
        sys.stderr.write(done.stderr.decode(errors="replace"))
        done.check_returncode()
        return done.stdout

    def complete(
        self, module: str, *arguments: str, environ: Mapping[str, str], seconds: float
    ) -> subprocess.CompletedProcess[bytes]:
        """Run one of our modules to its end, without a workspace and with every device of the machine."""
        every = self
        if self.sandbox:
            every = replace(self, sandbox=replace(self.sandbox, devices=devices.nodes(devices.find_gpus())))
        argv = [sys.executable, "-m", module, *arguments]
        with every._command(argv, environ, None) as command:  # noqa: SLF001  # same class
            return finish(command, seconds)

    @contextlib.contextmanager
    def _command(
        self, argv: Sequence[str], environ: Mapping[str, str], workspace: Path | None
    ) -> Iterator[Command]:
        """Yield the command that starts a program, in the sandbox if there is one."""
        if self.sandbox is None or self.bwrap is None:
            yield Command([*argv], without_secrets(environ))
            return
        home = str(INSIDE / "tmp") if workspace else "/tmp"  # noqa: S108  # its own
        inner = confine_variables({**environ, **dict(self.extra)}, home=home)
        options = self.sandbox.arguments(inner, workspace)
        with contextlib.ExitStack() as stack:
            keep = []
            for option, content in (
                ("--seccomp", seccomp.program(gpu=bool(self.sandbox.devices))),
                ("--args", b"".join(os.fsencode(word) + b"\0" for word in options)),
            ):
                descriptor = seccomp.seal(content, option)
                stack.callback(os.close, descriptor)
                keep += [option, descriptor]
            words = [self.bwrap, *map(str, keep), "--", *argv]
            # bubblewrap needs no environment; the child's is in the sealed options, hidden from `ps`.
            yield Command(words, {}, tuple(item for item in keep if isinstance(item, int)))
