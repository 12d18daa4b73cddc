"""The result of publishing: a version that can be waited for, loaded and pulled."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self, Unpack

from pt2hub.client.builds.until import parse_until
from pt2hub.rendering import sheets
from pt2hub.wire.responses import VersionView

if TYPE_CHECKING:
    from pt2hub.client.artifacts.loader import LoadedModel
    from pt2hub.client.artifacts.local import LocalArtifact
    from pt2hub.client.builds.events import OnEvent
    from pt2hub.client.builds.until import Until
    from pt2hub.client.config import ClientConfig
    from pt2hub.client.connection import Connection, LoadOptions
    from pt2hub.renderable import Sheet


@dataclass(frozen=True, repr=False, eq=False)
class Published(VersionView):
    """A published version with its builds; `wait` follows them."""

    @classmethod
    def of(cls, version: VersionView, config: ClientConfig) -> Self:
        """Return the published version with its transport."""
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
        """Wait until every build has ended. The builds continue after Ctrl-C.

            version.wait()
            version.wait("measured", timeout=600)

        Args:
            until: `measured` also waits for the measurements, unless a build did not succeed.
            timeout: Seconds after which it waits no longer; as long as the builds take where omitted.
            progress: Whether the builds are shown on stderr; where omitted they are in a terminal and in a
                notebook, unless `on_event` is given.

        Returns:
            The version as it is then; failed builds carry their error.

        Raises:
            BuildActive: The timeout expired before every build and measuring job ended; nothing is cancelled.
            InvalidInput: `until` is neither of the two.
        """
        with self._connection() as connection:
            followed = connection.versions.follow(
                self, on_event, progress=progress, timeout=timeout, until=parse_until(until) or "ready"
            )
        return Published.of(replace(followed, created=self.created), connection.config)

    def load(self, **options: Unpack[LoadOptions]) -> LoadedModel:
        """Load the artifact that runs on this machine; options as for `Client.load`.

        Raises:
            NotReady: No build succeeded yet.
        """
        with self._connection() as connection:
            return connection.load(self.reference, **options)

    def pull(self, **options: Any) -> LocalArtifact:
        """Download an artifact's files into the cache; options as for `Client.pull`."""
        with self._connection() as connection:
            return connection.pull(self.reference, **options)

    def _connection(self) -> Connection:
        from pt2hub.client.connection import Connection

        return Connection(getattr(self, "_config", None))  # after unpickling, the settings are read anew

    def _sheet(self) -> Sheet:
        return sheets.version(self, wait=".wait()", measured='.wait("measured")')
