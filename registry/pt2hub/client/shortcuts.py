"""`pt2hub.load`, `pt2hub.pull` and `pt2hub.publish`: a client for one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from pt2hub.client.client import Client

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import Unpack

    from pt2hub.client.cache import Verify
    from pt2hub.client.client import Model
    from pt2hub.client.loader import LoadedModel
    from pt2hub.client.local import LocalArtifact
    from pt2hub.client.options import ModelOptions, SpecOptions
    from pt2hub.client.published import Published


def load(
    reference: str,
    *,
    device: str | None = None,
    verify: Verify = "stat",
    run_single_threaded: bool = False,
    num_runners: int = 1,
    progress: bool | None = None,
) -> LoadedModel:
    """Pulls what is not here yet and loads it; see `Client.load`."""
    with Client() as client:
        return client.load(
            reference,
            device=device,
            verify=verify,
            run_single_threaded=run_single_threaded,
            num_runners=num_runners,
            progress=progress,
        )


def pull(
    reference: str, *, target: str | None = None, verify: Verify = "stat", progress: bool | None = None
) -> LocalArtifact:
    """Makes an artifact's files local; see `Client.pull`."""
    with Client() as client:
        return client.pull(reference, target=target, verify=verify, progress=progress)


@overload
def publish(spec: Mapping[str, Any] | str | Path, /, **options: Unpack[SpecOptions]) -> Published: ...


@overload
def publish(
    model: Model,
    /,
    args: Sequence[Any] = ...,
    kwargs: Mapping[str, Any] | None = ...,
    **options: Unpack[ModelOptions],
) -> Published: ...


def publish(source: Any, /, *args: Any, **options: Any) -> Published:  # either of the above
    """Publishes a model, from a spec or as it is in this process; see `Client.publish`."""
    with Client() as client:
        return client.publish(source, *args, **options)
