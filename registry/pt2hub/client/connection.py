"""A connection to one server, with the cache of pulled files."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, Unpack, overload

from pt2hub.client.artifacts.imports import collector_paused
from pt2hub.client.config import ClientConfig, checked_token
from pt2hub.errors import Incompatible, InvalidInput, NotReady, Offline

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta
    from pathlib import Path

    from pt2hub.client import resources
    from pt2hub.client.artifacts.loader import LoadedModel
    from pt2hub.client.artifacts.local import LocalArtifact
    from pt2hub.client.artifacts.origin import Origin
    from pt2hub.client.artifacts.puller import Puller
    from pt2hub.client.artifacts.yanks import YankWarnings
    from pt2hub.client.availability import Availability
    from pt2hub.client.blobs.cache import Verify
    from pt2hub.client.fallback_model import FallbackModel
    from pt2hub.client.http.transport import Transport
    from pt2hub.client.lock.locks import Locks
    from pt2hub.client.missing_artifacts import OnMissing

_HURRIED_S = 5.0
"""Seconds to wait for a server's answer if there is another way."""


class LoadOptions(TypedDict, total=False):
    """Options of a load that do not change its result's type; see `Connection.load`."""

    device: str | None
    verify: Verify
    run_single_threaded: bool | None
    num_runners: int
    cuda_graph: bool | None
    max_cuda_graphs: int
    progress: bool | None
    lock: str | Path | None
    offline: bool | None
    max_age: timedelta | float | None
    build_timeout: float | None
    files: bool


class Connection:
    """Pulls and loads artifacts of one server. Nothing is sent before the first method is called.

    Attributes:
        config: Address, token and directories.

    Args:
        config: All settings; read from the environment and `config.toml` where omitted.
        url: Address of another server; a token in `config.toml` is not sent there.
    """

    def __init__(
        self,
        config: ClientConfig | None = None,
        *,
        url: str | None = None,
        token: str | None = None,
    ) -> None:
        given = config or ClientConfig.from_environ()
        if url:
            given = given.at(url)
        if token:
            given = replace(given, token=checked_token(token, "token"), token_from=None)
        self.config = given
        self._others: dict[tuple[str | None, bool], Transport] = {}

    def close(self) -> None:
        """Close idle connections."""
        if "_transport" in self.__dict__:
            self._transport.close()
        for transport in self._others.values():
            transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # Everything below is made on first use: importing urllib3 takes a third of a load from the cache.
    @cached_property
    def _transport(self) -> Transport:
        return self._make_transport()

    def _connect(self, server: str | None = None, *, hurried: bool = False) -> Transport:
        """Return the transport to this client's server, or to one that only a lock file names."""
        if not server and not hurried:
            return self._transport
        if (server, hurried) not in self._others:
            self._others[server, hurried] = self._make_transport(server, hurried=hurried)
        return self._others[server, hurried]

    def _make_transport(self, server: str | None = None, *, hurried: bool = False) -> Transport:
        if self.config.availability.offline:
            if server is None:
                return self._make_offline_transport()
            raise Offline(
                "pt2hub is offline, and this needs the server",
                where=server,
                hint="Unset PT2HUB_OFFLINE.",
            )
        with collector_paused():
            from pt2hub.client.http.transport import Transport

        config, patience_s = self.config, _HURRIED_S if hurried else None
        if server:  # named by a lock file, which must not tell whom a token is sent to
            return Transport(server, url_from="the lock file", patience_s=patience_s)
        return Transport(
            config.url,
            token=config.token,
            url_from=config.url_from,
            token_from=config.token_from,
            patience_s=patience_s,
        )

    def _make_offline_transport(self) -> Transport:
        """Return the transport that answers from imported bundles."""
        with collector_paused():
            from pt2hub.client.records.offline_transport import OfflineTransport

        config = self.config

        return OfflineTransport(config.url, config.cache, self._make_origin(config.availability).resolve)

    def _make_puller(self, availability: Availability, *, server: str | None = None) -> Puller:
        from pt2hub.client.artifacts.puller import Puller
        from pt2hub.client.blobs.cache import BlobCache

        origin = self._make_origin(availability, server=server)
        return Puller(origin, BlobCache(self.config.cache, shared=self.config.shared_cache))

    def _make_origin(self, availability: Availability, *, server: str | None = None) -> Origin:
        from pt2hub.client.artifacts.origin import Origin

        connect, config = partial(self._connect, server), self.config
        return Origin(connect, config.cache, server or config.url, availability, self._yank_warnings)

    @cached_property
    def _yank_warnings(self) -> YankWarnings:
        from pt2hub.client.artifacts.yanks import YankWarnings

        return YankWarnings()

    @cached_property
    def locks(self) -> Locks:
        """Lock files, and pulling what they pin."""
        from pt2hub.client.lock.locks import Locks

        return Locks(self.config, self._connect, self._make_puller)

    @cached_property
    def builds(self) -> resources.Builds:
        """Builds and measuring jobs, their logs, and waiting for them."""
        from pt2hub.client.resources import Builds

        return Builds(self._transport)

    @cached_property
    def versions(self) -> resources.Versions:
        """Versions of models, and waiting for their builds."""
        from pt2hub.client.resources import Versions

        return Versions(self._transport)

    def pull(  # noqa: PLR0913  # each is an option by name
        self,
        reference: str,
        *,
        target: str | None = None,
        device: str | None = None,
        verify: Verify = "stat",
        progress: bool | None = None,
        lock: str | Path | None = None,
        offline: bool | None = None,
        max_age: timedelta | float | None = None,
        files: bool = True,
    ) -> LocalArtifact:
        """Download an artifact's files into the cache; see `Puller.pull`, and `load` for the options."""
        from pt2hub.client.blobs.folder import WAYS

        if verify not in WAYS:
            raise InvalidInput(
                f"Invalid verify {verify!r:.80}", where="verify", hint=f"Use {' or '.join(WAYS)}."
            )
        availability = self.config.availability.override(offline=offline, max_age=max_age)
        puller = (
            self._make_puller(availability)
            if lock is None
            else self.locks.puller(lock, availability=availability)
        )
        with closing(puller):
            return puller.pull(
                reference, target=target, device=device, verify=verify, progress=progress, files=files
            )

    @overload
    def load(
        self,
        reference: str,
        *,
        on_missing: Literal["build"] | None = ...,
        **options: Unpack[LoadOptions],
    ) -> LoadedModel: ...

    @overload
    def load(
        self, reference: str, *, on_missing: Callable[..., Any], **options: Unpack[LoadOptions]
    ) -> LoadedModel | FallbackModel: ...

    def load(  # noqa: PLR0913  # each is an option by name
        self,
        reference: str,
        *,
        device: str | None = None,
        verify: Verify = "stat",
        run_single_threaded: bool | None = None,
        num_runners: int = 1,
        cuda_graph: bool | None = None,
        max_cuda_graphs: int = 8,
        progress: bool | None = None,
        lock: str | Path | None = None,
        offline: bool | None = None,
        max_age: timedelta | float | None = None,
        on_missing: OnMissing | None = None,
        build_timeout: float | None = None,
        files: bool = True,
    ) -> LoadedModel | FallbackModel:
        """Load an artifact, pulling files that are not in the cache. Imports torch.

        A reference by digest or from a lock needs no server if the files are in the cache. While the server is away,
        another reference is what it was last known to be on this machine, with a warning
        (`LastKnownResolutionWarning`).

        Args:
            reference: `team/name@<number|alias|sha256:digest>`, or `team/name` for the newest ready version.
            device: For example `cuda:1`; if omitted, the GPU if the version has an artifact for it.
            verify: How cached weights are checked; code is always hashed.
            run_single_threaded: Whether calls skip the locks that let several threads call at a time; without
                CUDA graphs only one thread may call it then. None for only with CUDA graphs.
            num_runners: Calls that may run at a time, on several threads.
            cuda_graph: Whether calls replay CUDA graphs, captured at the first call with each combination of
                input shapes. None for the default of the artifact: its compile mode is `reduce-overhead` or
                `max-autotune`, and it runs on a GPU.
            max_cuda_graphs: Graphs that are held at a time; the least recently used one makes room.
            progress: Whether to show downloads and builds on stderr; None for only on a terminal or in a notebook.
            lock: A lock file: what the reference is locked to is loaded, whatever the server says.
            offline: Whether no server is asked at all; None for PT2HUB_OFFLINE.
            max_age: How old, in seconds or as a timedelta, a last known resolution may be; None for PT2HUB_MAX_AGE,
                which is 7 days by default.
            on_missing: What to do if no artifact of the version runs here: `build` has the server build one for this
                machine and waits; a callable, such as the eager module, is called in its place until one is built, which
                a thread sees to. Both need a token that may publish.
            build_timeout: Seconds to wait for that build at most.
            files: Whether the attached files are pulled too; `model.files` has their paths by name.

        Returns:
            The model; call it like the module it was published from. With a callable as `on_missing` and no artifact, a
            `FallbackModel`.

        Raises:
            Incompatible: No published artifact runs here; the error says why for each one, and how to build one that
                does.
            NotReady: The version has no artifact yet, or the build for this machine failed.
            BuildActive: `build_timeout` expired; the build continues.
            NotFound: The version does not exist, or is not locked.
            LockMismatch: The artifact is not as it was locked.
            Offline: No server is asked, and something is not in the cache.
            ServerUnreachable: The server did not answer, and nothing else has what is needed.
            ResolutionExpired: The same, and what is known of the reference is too old.
            CudaGraphUnavailable: The artifact or another option excludes CUDA graphs.
            BadConfiguration: torch is not installed.
        """
        from pt2hub.extras import require_torch

        require_torch()
        attempt = partial(
            Connection._load_here,
            device=device,
            verify=verify,
            progress=progress,
            lock=lock,
            offline=offline,
            max_age=max_age,
            run_single_threaded=run_single_threaded,
            num_runners=num_runners,
            cuda_graph=cuda_graph,
            max_cuda_graphs=max_cuda_graphs,
            files=files,
        )
        if on_missing is None:
            return attempt(self, reference)
        from pt2hub.client.missing_artifacts import build_missing, check_on_missing

        away = self.config.availability.override(offline=offline, max_age=max_age).offline
        check_on_missing(on_missing, reference, is_locked=lock is not None, offline=away)
        try:
            return attempt(self, reference)
        except (Incompatible, NotReady) as exc:
            missing = exc

        def build_and_load(*, progress: bool | None = False) -> LoadedModel:
            with Connection(self.config) as own:  # this connection may be closed before a thread has ended
                version = build_missing(
                    own.versions, own.builds, missing, device=device, timeout=build_timeout, progress=progress
                )
                return attempt(own, version)

        if callable(on_missing):
            from pt2hub.client.fallback_model import FallbackModel

            return FallbackModel(on_missing, build_and_load, missing, reference)
        return build_and_load(progress=progress)

    def _load_here(  # noqa: PLR0913  # the options of a pull, by name
        self,
        reference: str,
        *,
        device: str | None,
        verify: Verify,
        progress: bool | None,
        lock: str | Path | None,
        offline: bool | None,
        max_age: timedelta | float | None,
        files: bool,
        **options: Any,
    ) -> LoadedModel:
        with collector_paused():
            from pt2hub.client.artifacts.loader import load_artifact

        artifact = self.pull(
            reference,
            device=device,
            verify=verify,
            progress=progress,
            lock=lock,
            offline=offline,
            max_age=max_age,
            files=files,
        )
        return load_artifact(artifact, device=device, **options)
