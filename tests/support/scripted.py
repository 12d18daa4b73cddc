"""Children that run given statements in place of pt2hub's own, at either level of isolation."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub_workers.children.child import Child
from pt2hub_workers.inside.operations.channel import CHANNEL_FD
from pt2hub_workers.sandbox import Launcher
from pt2hub_workers.sandbox.workspaces import Workspaces

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pt2hub_workers.operations.cancellation import CancellationToken
    from pt2hub_workers.sandbox import Level, Started
    from pt2hub_workers.sandbox.workspaces import Workspace

CHANNEL = f"int(os.environ['{CHANNEL_FD}'])"
READY = f'os.write({CHANNEL}, b\'{{"event": "ready"}}\\n\')'
"""Says that the child is warm."""
JOB = f"job = os.read({CHANNEL}, 1 << 20)"
"""Waits for the job."""


def sends(message: bytes) -> str:
    """The statement that sends a message."""
    return f"os.write({CHANNEL}, {message + bytes([10])!r})"


@dataclass(frozen=True, slots=True)
class Script:
    """A launcher whose children run statements; `os`, `signal` and `time` are imported.

    Attributes:
        launcher: Starts them.
        statements: What they do.
    """

    launcher: Launcher
    statements: str

    @property
    def inside(self) -> Path | None:
        """As that of the launcher."""
        return self.launcher.inside

    @property
    def level(self) -> Level:
        """As that of the launcher."""
        return self.launcher.level

    def start(self, role: str, *, environ: Mapping[str, str], workspace: Workspace | None) -> Started:
        """Starts one."""
        program = f"import os, signal, time\n{self.statements}"
        return self.launcher.run(
            [sys.executable, "-c", program], environ=environ, workspace=workspace, name=role
        )


@dataclass(frozen=True, slots=True)
class ScriptedChild:
    """A child that runs statements.

    Attributes:
        child: The child.
    """

    child: Child

    @classmethod
    def of(cls, launcher: Launcher, scratch: Path, statements: str, role: str = "build") -> ScriptedChild:
        """Starts the child in its own workspace."""
        workspace = Workspaces(scratch, inside=launcher.inside).open(role)
        script: Launcher = Script(launcher, statements)  # type: ignore[assignment]  # as much of one as a child needs
        return cls(Child(role, script, environ={}, workspace=workspace))

    @property
    def workspace(self) -> Workspace:
        """Workspace of the child."""
        return self.child.workspace

    def work(
        self,
        token: CancellationToken,
        *,
        seconds: float,
        on_event: Callable[[dict[str, object]], object] = print,
        on_output: Callable[[str], None] = print,
    ) -> object:
        """Has it do its statements."""
        return self.child.work({}, on_event=on_event, on_output=on_output, seconds=seconds, token=token)
