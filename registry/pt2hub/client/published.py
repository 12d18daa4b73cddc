"""What publishing returns: the version, and what comes next."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self

from pt2hub.client.options import waited_for
from pt2hub.rendering import printing
from pt2hub.wire.shapes import VersionView

if TYPE_CHECKING:
    from pt2hub.client.client import Client
    from pt2hub.client.config import ClientConfig
    from pt2hub.client.events import OnEvent
    from pt2hub.client.loader import LoadedModel
    from pt2hub.client.local import LocalArtifact
    from pt2hub.client.options import Until
    from pt2hub.printed import Sheet


@dataclass(frozen=True, repr=False, eq=False)
class Published(VersionView):
    """A version as it was when it was published, its builds among it; `wait` follows them to their end."""

    @classmethod
    def of(cls, version: VersionView, config: ClientConfig) -> Self:
        """A version, and the server that it is on."""
        made = cls(**{item.name: getattr(version, item.name) for item in fields(VersionView)})
        # No field: it holds a token, which neither `encode` nor a pickle may carry away.
        object.__setattr__(made, "_config", config)
        return made

    @property
    def reference(self) -> str:
        """`team/name@3`: what `pt2hub.load` and every command take."""
        return f"{self.model}@{self.number}"

    def wait(
        self,
        until: Until = "ready",
        timeout: float | None = None,
        on_event: OnEvent | None = None,
        *,
        progress: bool | None = None,
    ) -> Published:
        """Waits until every build is final. Ctrl-C ends the waiting only: the builds go on.

            version.wait()
            version.wait("measured", timeout=600)

        Args:
            until: `measured` waits for the measurements of its artifacts besides, unless a build did not succeed.
            timeout: Seconds after which it waits no longer; as long as the builds take where omitted.
            on_event: Called for every change.
            progress: Whether the builds are shown on stderr; where omitted they are in a terminal and in a
                notebook, unless `on_event` is given.

        Returns:
            The version as it is then; failed builds carry their error.

        Raises:
            BuildActive: The time is over and a build or measuring job is not; nothing is cancelled.
            InvalidInput: `until` is none of the two.
        """
        with self._client() as client:
            followed = client.follow(
                self, on_event, progress=progress, timeout=timeout, until=waited_for(until) or "ready"
            )
        return Published.of(replace(followed, created=self.created), client.config)

    def load(self, **options: Any) -> LoadedModel:  # noqa: ANN401  # as Client.load
        """Loads the artifact that runs on this machine; options as for `Client.load`.

        Raises:
            NotReady: No build succeeded yet.
        """
        with self._client() as client:
            return client.load(self.reference, **options)

    def pull(self, **options: Any) -> LocalArtifact:  # noqa: ANN401  # as Client.pull
        """Makes an artifact's files local; options as for `Client.pull`."""
        with self._client() as client:
            return client.pull(self.reference, **options)

    def _client(self) -> Client:
        from pt2hub.client.client import Client

        return Client(getattr(self, "_config", None))  # one that was unpickled finds its server anew

    def _sheet(self) -> Sheet:
        return printing.version(self, wait=".wait()", measured='.wait("measured")')
