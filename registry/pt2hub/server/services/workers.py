"""Workers: who lives, what they offer, and what happens to the builds of those who do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.errors import NotFound
from pt2hub.server.db.stores.builds import BuildStore
from pt2hub.server.db.stores.workers import WorkerStore

if TYPE_CHECKING:
    from datetime import timedelta

    from pt2hub.domain.artifacts import Environment, Toolchain
    from pt2hub.domain.targets import Target
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.queue import BuildQueue
    from pt2hub.wire.shapes import TargetView


class WorkerService:
    """Workers."""

    def __init__(self, sessions: Sessions, queue: BuildQueue, *, silence: timedelta) -> None:
        """Is built by the container.

        Args:
            sessions: Opens transactions.
            queue: Takes the builds of lost workers.
            silence: Time without a heartbeat after which a worker is lost.
        """
        self._sessions = sessions
        self._queue = queue
        self._silence = silence

    def register(
        self,
        *,
        worker_id: str,
        target: Target,
        toolchain: Toolchain,
        environment: Environment,
        packages: dict[str, str],
    ) -> None:
        """Adds a worker, alive from now on, or renews what it says about itself.

        Args:
            worker_id: A name of its own, new for each process.
            target: What it builds for.
            toolchain: The versions that shape its code.
            environment: Its machine.
            packages: Versions of the packages that factories come from, torch included.
        """
        with self._sessions.begin() as session:
            WorkerStore(session).register(
                worker_id, target=target, toolchain=toolchain, environment=environment, packages=packages
            )

    def heartbeat(self, worker_id: str) -> None:
        """Keeps a worker alive.

        Raises:
            NotFound: There is no such worker: it must register.
        """
        with self._sessions.begin() as session:
            if not WorkerStore(session).beat(worker_id):
                raise NotFound(f"There is no worker {worker_id[:80]!r}", hint="Register it first.")

    def leave(self, worker_id: str) -> None:
        """Ends a worker: its target counts one worker less at once, and builds it still holds are requeued."""
        with self._sessions.begin() as session:
            WorkerStore(session).leave(worker_id)

    def targets(self) -> list[TargetView]:
        """Every target that a worker ever offered, with its live workers."""
        with self._sessions.begin() as session:
            return WorkerStore(session).targets(self._silence)

    def requeue_lost(self) -> list[str]:
        """Queues the running builds of lost workers again, and delivers queued ones whose job went astray.

        The lost attempt may still be alive somewhere; it can publish no more. Attempts are counted at the claim.

        Returns:
            The builds' ids.
        """
        with self._sessions.begin() as session:
            builds = BuildStore(session)
            lost = builds.requeue_lost(self._silence)
            astray = builds.targets(self._queue.undeliverable(session, silence=self._silence))
            for build_id, target in (*lost, *astray):
                self._queue.defer(session, build_id, queue=target)
            return [build_id for build_id, _ in (*lost, *astray)]
