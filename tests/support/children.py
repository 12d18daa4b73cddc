"""Wrappers of a toolchain's child processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub_workers.builds.toolchains import ChildHandle

if TYPE_CHECKING:
    from pt2hub_workers.sandbox.workspaces import Workspace


@dataclass(frozen=True, slots=True)
class ChildWrapper:
    """Wraps a child and shares its workspace; subclasses do the job."""

    child: ChildHandle

    @property
    def workspace(self) -> Workspace:
        """Workspace of the wrapped child."""
        return self.child.workspace

    @property
    def alive(self) -> bool:
        """Whether the wrapped child is running."""
        return self.child.alive

    def wait_warm(self, seconds: float) -> bool:
        """Waits for the wrapped child."""
        return self.child.wait_warm(seconds)

    def close(self) -> None:
        """Closes the wrapped child."""
        self.child.close()
