"""The client: publish, follow, pull and load over one server and one cache."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, overload

from pt2hub.client.imports import collector_paused
from pt2hub.client.performing import Performing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import TypeAlias, Unpack

    from torch.export import ExportedProgram
    from torch.nn import Module

    from pt2hub.client.cache import Verify
    from pt2hub.client.catalog import Catalog
    from pt2hub.client.events import BuildEvent, OnEvent
    from pt2hub.client.loader import LoadedModel
    from pt2hub.client.local import LocalArtifact
    from pt2hub.client.options import ModelOptions, SpecOptions, Until
    from pt2hub.client.published import Published
    from pt2hub.client.publishing import Publisher
    from pt2hub.client.pulling import Puller
    from pt2hub.domain.digests import Digest
    from pt2hub.wire.artifacts import ArtifactView
    from pt2hub.wire.resolution import Resolved
    from pt2hub.wire.shapes import (
        AliasView,
        BuildView,
        LogView,
        ModelView,
        TargetView,
        VersionSummary,
        VersionView,
    )
    from pt2hub.wire.workers import WorkerView

    Model: TypeAlias = "Module | ExportedProgram | Callable[..., Any]"


class Now(Enum):
    """The one value that stands for whatever is there now."""

    NOW = "now"


NOW = Now.NOW


class Client(Performing):
    """A pt2hub server, seen from a program. Nothing is sent before the first method is called.

    Attributes:
        config: Where it speaks to and keeps files.
    """

    # Made on first use: lists need nothing of archives and caches.
    @cached_property
    def _puller(self) -> Puller:
        from pt2hub.client.cache import BlobCache
        from pt2hub.client.pulling import Puller

        return Puller(lambda: self._transport, BlobCache(self.config.cache))

    @cached_property
    def _publisher(self) -> Publisher:
        from pt2hub.client.publishing import Publisher

        return Publisher(self._transport, self.config.torchvision_mirror)

    @cached_property
    def _catalog(self) -> Catalog:
        from pt2hub.client.catalog import Catalog

        return Catalog(self._transport)

    @overload
    def publish(
        self, spec: Mapping[str, Any] | str | Path, /, **options: Unpack[SpecOptions]
    ) -> Published: ...

    @overload
    def publish(
        self,
        model: Model,
        /,
        args: Sequence[Any] = ...,
        kwargs: Mapping[str, Any] | None = ...,
        **options: Unpack[ModelOptions],
    ) -> Published: ...

    def publish(
        self,
        source: object,
        /,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Published:
        """Publishes a model: from a spec, or as it is in this process.

            publish("resnet18.yaml", weights="retrained.safetensors")
            publish(model, (x,), name="team/model", dynamic_shapes={"x": {0: Dim("batch", max=64)}})

        A live model is exported here with torch.export; its program, its weights and the example inputs are
        uploaded as far as the server lacks them, and the model stays as it is. With `code` and `entry` its source
        code is shipped in place of the program.

        Args:
            source: A spec (a YAML or JSON file, or a dict), or a live model: a torch.nn.Module in eval mode, a
                plain function, or an exported program.
            args: Of a live model: example arguments, at which it is exported and measured. What is no tensor is
                fixed. A program's own where omitted.
            kwargs: Of a live model: example arguments by name.
            **options: `priority`, `wait`, `on_event` and `progress`, see `options.Options`; for a spec the files
                of `options.SpecOptions`, for a model `name` and the others of `options.ModelOptions`.

        Returns:
            The version and its builds; the same content again is the same version. Its `wait` follows them.

        Raises:
            UsageError: A field or an argument is wrong, or the model cannot be exported.
            Unauthorized: The token is missing or wrong.
        """
        from pt2hub.client.options import waited_for
        from pt2hub.client.published import Published
        from pt2hub.client.publishing import check_request

        if check_request(source, args, kwargs, options):
            version = self._publisher.submit_model(source, args, kwargs or {}, cast("ModelOptions", options))
        else:
            version = self._publisher.submit_spec(
                cast("Mapping[str, Any]", source), cast("SpecOptions", options)
            )
        if until := waited_for(options.get("wait")):
            version = self.follow(
                version, options.get("on_event"), progress=options.get("progress"), until=until
            )
        return Published.of(version, self.config)

    def follow(
        self,
        version: VersionView,
        on_event: OnEvent | None = None,
        *,
        progress: bool | None = None,
        timeout: float | None = None,
        until: Until = "ready",
    ) -> VersionView:
        """Waits until every build of a version is final; see `publish`. Interrupting it leaves them running.

        Args:
            version: As `publish` returned it.
            on_event: Called for every change.
            progress: Whether the builds are shown on stderr; see `options.Options`.
            timeout: Seconds after which it waits no longer.
            until: `measured` waits for the measuring jobs of its artifacts besides, unless a build did not succeed.
                Each build's `measurement` says what became of them.

        Raises:
            BuildActive: The time is over and a build or measuring job is not; nothing is cancelled.
        """
        from pt2hub.client.measuring import time_left
        from pt2hub.client.progress import automatic

        with automatic(False if on_event and progress is None else progress) as shown:

            def both(event: BuildEvent) -> None:
                shown(event)
                if on_event:
                    on_event(event)

            left = time_left(timeout)
            followed = self._publisher.follow(version, both, timeout=timeout)
            if until == "measured":
                followed = self._measuring.follow_version(followed, both, left=left)
        return replace(followed, created=version.created)

    def upload_file(self, path: str | Path, *, progress: bool | None = None) -> Digest:
        """Uploads a file, unless the server has its bytes already; a spec names it by the digest."""
        return self._publisher.upload(Path(path), progress=progress)

    def version(self, model: str, number: int) -> VersionView:
        """A version and its builds."""
        return self._publisher.version(model, number)

    def build(self, build_id: str) -> BuildView:
        """A build, its attempts, and the steps of the latest one."""
        return self._publisher.build(build_id)

    def logs(
        self, build_id: str, *, after: int = 0, attempt: int | None = None, summary: bool = False
    ) -> list[LogView]:
        """Lines of an attempt's log after a position.

        Args:
            build_id: The build.
            after: Position of the last line known.
            attempt: Number of the attempt, the latest where omitted.
            summary: Leave the compiler's noise out.
        """
        return self._publisher.logs(build_id, after=after, attempt=attempt, summary=summary)

    def all_logs(
        self, build_id: str, *, attempt: int | None = None, summary: bool = False
    ) -> Iterator[LogView]:
        """Every line of an attempt's log that is there now; see `logs`."""
        return self._publisher.all_logs(build_id, attempt=attempt, summary=summary)

    def follow_logs(
        self,
        build_id: str,
        *,
        summary: bool = False,
        on_build: Callable[[BuildView], object] | None = None,
    ) -> Iterator[LogView]:
        """The lines of a build's log as they come, from attempt to attempt, until the build is final.

        Args:
            build_id: The build.
            summary: Leave the compiler's noise out.
            on_build: Called with the build at first and at each change, between the lines.
        """
        return self._publisher.follow_logs(build_id, summary=summary, on_build=on_build)

    def models(self, search: str | None = None) -> list[ModelView]:
        """Models in the order of their names; those whose name holds `search` where it is given."""
        return list(self._catalog.models(search))

    def model(self, name: str) -> ModelView:
        """A model: how many versions, which is the newest, where its aliases are."""
        return self._catalog.model(name)

    def describe(self, model: str, text: str) -> ModelView:
        """Says what a model is, for people who look it up; no version of it changes.

        Args:
            model: The model's name.
            text: Plain text of at most 2,000 characters, its line breaks kept; empty to take the description away.

        Returns:
            The model.

        Raises:
            InvalidInput: The text is too long, or holds characters that steer a terminal.
            NotFound: There is no such model; near names are in the hint.
        """
        return self._catalog.describe(model, text)

    def versions(self, model: str, *, limit: int | None = None) -> list[VersionSummary]:
        """Versions of a model, newest first, at most `limit`."""
        return list(islice(self._catalog.versions(model), limit))

    def builds(
        self,
        model: str | None = None,
        *,
        number: int | None = None,
        state: str | None = None,
        target: str | None = None,
        kind: str | None = None,
        limit: int = 50,
    ) -> list[BuildView]:
        """Builds and measuring jobs, newest first, without their steps.

        Args:
            model: Of this model only.
            number: Of this version of the model only.
            state: In this state only, one of `domain.builds.BuildState`.
            target: For this target only.
            kind: Of this kind only, `build` or `measure`.
            limit: At most so many.
        """
        found = self._catalog.builds(model=model, number=number, state=state, target=target, kind=kind)
        return list(islice(found, limit))

    def cancel(self, build_id: str) -> BuildView:
        """Ends a build that is queued or running; see `Catalog.cancel`."""
        return self._catalog.cancel(build_id)

    def retry(self, build_id: str, priority: int | None = None) -> BuildView:
        """Queues a build again that failed or was cancelled; see `Catalog.retry`."""
        return self._catalog.retry(build_id, priority)

    def aliases(self, model: str) -> list[AliasView]:
        """The aliases of a model, by name."""
        return self._catalog.aliases(model)

    def alias(self, model: str, name: str) -> AliasView:
        """An alias with its history."""
        return self._catalog.alias(model, name)

    def move_alias(  # noqa: PLR0913  # each is an option by name
        self,
        model: str,
        name: str,
        number: int,
        *,
        reason: str,
        expected: int | Now | None = NOW,
        force: bool = False,
        wait: bool = False,
        timeout: float | None = None,
        on_event: OnEvent | None = None,
    ) -> AliasView:
        """Puts an alias on a version; see `Catalog.move`.

        Args:
            model: The model's name.
            name: The alias's name.
            number: The version.
            reason: Why; kept in the history.
            expected: The version it is on as far as the caller knows, None for an alias that does not exist.
                Where omitted, the one it is on now: nothing then guards against a move in the last seconds
                that the caller did not see.
            force: Move it even where the model's policy refuses; takes an admin's token.
            wait: Where the policy lacks nothing but figures of measuring jobs that are under way, wait for these and
                move the alias as soon as it passes, if it still is where it was at first.
            timeout: Seconds after which it waits no longer; as long as they take where omitted.
            on_event: Called for every change of those jobs.

        Raises:
            AliasMoved: It is on another version than expected, or was moved while this waited.
            GateRefused: The model's policy refuses.
            BuildActive: The time is over and a measuring job is not; the alias stays.
        """
        known = self._catalog.current(model, name) if expected is NOW else expected
        move = partial(self._catalog.move, model, name, number, expected=known, reason=reason, force=force)
        if not wait:
            return move()
        from pt2hub.client.measuring import time_left
        from pt2hub.client.promotion import move_when_measured

        left = time_left(timeout)
        follow = partial(self._measuring.follow, on_event=on_event, left=left)
        return move_when_measured(move, follow, f"{model}@{name}")

    def remove_alias(self, model: str, name: str, *, reason: str, expected: int) -> AliasView:
        """Takes an alias away; its history stays."""
        return self._catalog.remove(model, name, expected=expected, reason=reason)

    def targets(self) -> list[TargetView]:
        """The targets that workers offer or offered, and their queues."""
        return list(self._catalog.targets())

    def workers(self, *, gone: bool = False) -> list[WorkerView]:
        """The workers that live, and what each is doing; with `gone` also those that went within a day."""
        return list(self._catalog.workers(gone=gone))

    def artifact(self, digest: Digest) -> ArtifactView:
        """Everything known of an artifact: config, manifest, members, autotuning, measurements."""
        from pt2hub.wire.artifacts import ArtifactView

        return self._transport.fetch(ArtifactView, f"/api/v1/artifacts/{digest}")

    def resolve(self, reference: str) -> Resolved:
        """What a reference names now: a version and its artifacts, pinned by digest."""
        return self._puller.resolve(reference)

    def pull(
        self,
        reference: str,
        *,
        target: str | None = None,
        verify: Verify = "stat",
        progress: bool | None = None,
    ) -> LocalArtifact:
        """Makes an artifact's files local; see `Puller.pull`."""
        return self._puller.pull(reference, target=target, verify=verify, progress=progress)

    def load(
        self,
        reference: str,
        *,
        device: str | None = None,
        verify: Verify = "stat",
        run_single_threaded: bool = False,
        num_runners: int = 1,
        progress: bool | None = None,
    ) -> LoadedModel:
        """Pulls what is not here yet and loads it; imports torch.

        A reference pinned by digest whose files are in the cache needs no server.

        Args:
            reference: `team/name@<number|alias|sha256:digest>`, or `team/name` for the newest ready version.
            device: Such as `cuda:1`; the artifact's own device where omitted.
            verify: How cached weights are checked; code is always hashed.
            run_single_threaded: Without locks, one call at a time; needed for CUDA graphs.
            num_runners: Calls that may run at the same time.
            progress: Whether downloads are shown on stderr; None where somebody watches.

        Returns:
            The model; call it like the module it was published from.

        Raises:
            Incompatible: Nothing published runs here; the failing axes are named.
            NotFound: There is no such version.
            BadConfiguration: torch is not installed.
        """
        from pt2hub.extras import require_torch

        require_torch()
        with collector_paused():
            from pt2hub.client.loader import load_artifact

            puller = self._puller
        artifact = puller.pull(reference, verify=verify, progress=progress)
        return load_artifact(
            artifact, device=device, run_single_threaded=run_single_threaded, num_runners=num_runners
        )
