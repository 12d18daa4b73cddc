"""The client: publish, follow, pull and load over one server and one cache."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pt2hub.client.cache import BlobCache
from pt2hub.client.config import ClientConfig
from pt2hub.client.pulling import Puller
from pt2hub.domain.codec import decode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pt2hub.client.cache import Verify
    from pt2hub.client.loader import LoadedModel
    from pt2hub.client.local import LocalArtifact
    from pt2hub.client.publishing import OnEvent, Publisher
    from pt2hub.client.transport import Transport
    from pt2hub.domain.digests import Digest
    from pt2hub.wire.shapes import BuildView, LogView, Resolved, TargetView, VersionView


class Client:
    """A pt2hub server, seen from a program. Nothing is sent before the first method is called.

    Attributes:
        config: Where it speaks to and keeps files.
    """

    def __init__(
        self,
        config: ClientConfig | None = None,
        *,
        url: str | None = None,
        token: str | None = None,
    ) -> None:
        """Prepares a client.

        Args:
            config: All settings; read from the environment and `config.toml` where omitted.
            url: Another server's address.
            token: Another token.

        Raises:
            BadConfiguration: A setting is wrong.
        """
        given = config or ClientConfig.from_environ()
        self.config = replace(given, url=url or given.url, token=token or given.token)
        self._puller = Puller(lambda: self._transport, BlobCache(self.config.cache))

    def close(self) -> None:
        """Closes idle connections."""
        if "_transport" in self.__dict__:
            self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # Made on first use: urllib3's import is a third of a load whose files are in the cache.
    @cached_property
    def _transport(self) -> Transport:
        from pt2hub.client.transport import Transport

        return Transport(self.config.url, token=self.config.token)

    @cached_property
    def _publisher(self) -> Publisher:
        from pt2hub.client.publishing import Publisher

        return Publisher(self._transport)

    def publish(
        self,
        spec: Mapping[str, Any] | str | Path,
        *,
        weights: str | Path | None = None,
        wait: bool = False,
        on_event: OnEvent | None = None,
    ) -> VersionView:
        """Publishes a model.

        Args:
            spec: A file (YAML or JSON), or the spec itself.
            weights: A safetensors file, uploaded and named in the spec.
            wait: Return only when every build is final; failed builds carry their error.
            on_event: Called for every change while waiting.

        Returns:
            The version and its builds; the same content again is the same version.

        Raises:
            UsageError: A field is wrong; the error names each one.
            Unauthorized: The token is missing or wrong.
        """
        version = self._publisher.submit(spec, weights=Path(weights) if weights else None)
        return self.follow(version, on_event) if wait else version

    def follow(self, version: VersionView, on_event: OnEvent | None = None) -> VersionView:
        """Waits until every build of a version is final; see `publish`."""
        followed = self._publisher.follow(version, on_event)
        return replace(followed, created=version.created)

    def upload_file(self, path: str | Path) -> Digest:
        """Uploads a file, unless the server has its bytes already; a spec names it by the digest."""
        return self._publisher.upload(Path(path))

    def version(self, model: str, number: int) -> VersionView:
        """A version and its builds."""
        return self._publisher.version(model, number)

    def build(self, build_id: str) -> BuildView:
        """A build and the steps of its latest attempt."""
        return self._publisher.build(build_id)

    def logs(self, build_id: str, *, after: int = 0) -> list[LogView]:
        """Lines of the latest attempt's log after a position."""
        return self._publisher.logs(build_id, after=after)

    def all_logs(self, build_id: str) -> Iterator[LogView]:
        """Every line of the latest attempt's log that is there now."""
        return self._publisher.all_logs(build_id)

    def follow_logs(self, build_id: str) -> Iterator[LogView]:
        """The lines of a build's log as they come, until the build is final."""
        return self._publisher.follow_logs(build_id)

    def targets(self) -> list[TargetView]:
        """The targets that workers offer or offered."""
        from pt2hub.wire.shapes import TargetView

        answer = self._transport.get("/api/v1/targets")
        return decode(list[TargetView], answer.get("targets") if isinstance(answer, dict) else None)

    def artifact(self, digest: Digest) -> dict[str, Any]:
        """Everything known of an artifact: config, manifest, members, autotuning, measurements."""
        return decode(dict[str, Any], self._transport.get(f"/api/v1/artifacts/{digest}"))

    def resolve(self, reference: str) -> Resolved:
        """What a reference names now: a version and its artifacts, pinned by digest."""
        return self._puller.resolve(reference)

    def pull(self, reference: str, *, target: str | None = None, verify: Verify = "stat") -> LocalArtifact:
        """Makes an artifact's files local; see `Puller.pull`."""
        return self._puller.pull(reference, target=target, verify=verify)

    def load(
        self,
        reference: str,
        *,
        device: str | None = None,
        verify: Verify = "stat",
        run_single_threaded: bool = False,
        num_runners: int = 1,
    ) -> LoadedModel:
        """Pulls what is not here yet and loads it; imports torch.

        A reference pinned by digest whose files are in the cache needs no server.

        Args:
            reference: `team/name@<number|alias|sha256:digest>`, or `team/name` for the newest ready version.
            device: Such as `cuda:1`; the artifact's own device where omitted.
            verify: How cached weights are checked; code is always hashed.
            run_single_threaded: Without locks, one call at a time; needed for CUDA graphs.
            num_runners: Calls that may run at the same time.

        Returns:
            The model; call it like the module it was published from.

        Raises:
            Incompatible: Nothing published runs here; the failing axes are named.
            NotFound: There is no such version.
        """
        artifact = self.pull(reference, verify=verify)
        from pt2hub.client.loader import load_artifact

        return load_artifact(
            artifact, device=device, run_single_threaded=run_single_threaded, num_runners=num_runners
        )
