"""Toolchain interface: what turns a spec into an artifact. The attempt around it is the same for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pt2hub.domain.digests import Digest
    from pt2hub.domain.workers import Isolation
    from pt2hub_workers.operations.cancellation import CancellationToken
    from pt2hub_workers.operations.machine import Machine
    from pt2hub_workers.sandbox.workspaces import Workspace


class ChildHandle(Protocol):
    """Child process that does a single job."""

    @property
    def workspace(self) -> Workspace:
        """Workspace of the child, which gets absolute paths as it sees them and returns paths relative to it."""

    @property
    def alive(self) -> bool:
        """Whether the process is still running."""

    def wait_warm(self, seconds: float) -> bool:
        """Wait until the child is ready for its job or has ended; return whether it is ready."""

    def close(self) -> None:
        """End the child and remove its workspace."""

    def work(
        self,
        job: Mapping[str, Any],
        *,
        on_event: Callable[[dict[str, Any]], Any],
        on_output: Callable[[str], None],
        seconds: float,
        token: CancellationToken,
    ) -> Any:
        """Do the job.

        Raises:
            ChildDied: The child ended without an answer.
            ChildHung: The child did not answer in time.
            Cancelled: The token was set.
            LimitExceeded: The child exceeded a resource limit.
            OutputRefused: The child sent an invalid message.
            Pt2hubError: The error that the child reported.
        """


class Toolchain(Protocol):
    """What a worker builds with.

    Attributes:
        isolation: Isolation level of users' code, recorded in every artifact's provenance.
        isolation_profile: Digest of the sandbox profile; None without a sandbox.
    """

    isolation: Isolation
    isolation_profile: Digest | None

    def machine(self) -> Machine:
        """Return the worker's target, toolchain and environment."""

    def take(self, role: str) -> ChildHandle:
        """Return a child for a job, in an empty workspace; the caller closes it.

        Args:
            role: `build` runs users' code; `artifact` runs the artifact; `verify` compares its outputs and runs neither;
                `measure` and `baselines` time implementations; `headers` compiles what builds share.
        """

    def open_workspace(self) -> Workspace:
        """Return a workspace without a process, for files that an attempt fetches itself; the caller closes it."""

    def refill(self) -> None:
        """Start preparing children for the next jobs; return at once."""

    def wait_warm(self, seconds: float) -> bool:
        """Wait until the children are prepared; return whether they are."""

    def close(self) -> None:
        """End all waiting children."""
