"""Pulling of artifacts: resolve, check compatibility, fetch manifest, config and blobs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

from pt2hub.client.artifacts.local import LocalArtifact
from pt2hub.client.http.transfers import count_chunks
from pt2hub.client.machine.host import advice, check_host, refusal, this_host
from pt2hub.domain.artifacts import CODE_TYPE, CONFIG_SCHEMA, TITLE, WEIGHTS_TYPE, ArtifactConfig, Manifest
from pt2hub.domain.codec import decode
from pt2hub.domain.compatibility import assess_compatibility, may_be_portable
from pt2hub.domain.names import Reference
from pt2hub.domain.targets import parse_target
from pt2hub.errors import BadResponse, ClientTooOld, Incompatible, NotFound, NotReady, UnknownTarget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pt2hub.client.blobs.cache import BlobCache, Verify
    from pt2hub.client.http.transport import Transport
    from pt2hub.domain.artifacts import Descriptor
    from pt2hub.domain.compatibility import Compatibility, Host
    from pt2hub.domain.digests import Digest
    from pt2hub.domain.targets import Target
    from pt2hub.wire.resolution import ArtifactRef, ResolvedReference

T = TypeVar("T")
_NEWER_TARGET = "unknown target: upgrade pt2hub to use it"


class Puller:
    """Brings artifacts into the cache.

    Args:
        connect: Gives the transport; a pinned artifact that is in the cache never asks for it.
        cache: Where files are kept.
    """

    def __init__(self, connect: Callable[[], Transport], cache: BlobCache) -> None:
        self._connect = connect
        self._cache = cache

    def pull(
        self,
        reference: str,
        *,
        target: str | None = None,
        verify: Verify = "stat",
        progress: bool | None = None,
    ) -> LocalArtifact:
        """Download an artifact's files into the cache.

        Args:
            reference: `team/name@<number|alias|sha256:digest>`, or `team/name` for the newest ready version.
            target: The target wanted, for another machine too; where omitted, the one that runs here.
            verify: How weights that are in the cache already are checked; code is always hashed.
            progress: Whether downloads are shown on stderr; None where somebody watches.

        Raises:
            NotFound: The version does not exist, or lacks the target.
            Incompatible: None of its targets runs here; the error says what each one lacks.
            DigestMismatch: Bytes were changed on the way.
            ServerUnreachable: Something is missing here and the server did not answer.
        """
        parsed = Reference.parse(reference)
        digest = parsed.digest or self._choose(
            resolve(self._connect(), reference), target, prefix=parsed.prefix or ""
        )
        manifest = self._manifest(parsed.model, digest)
        config = _document(ArtifactConfig, self._blob(manifest.config, progress=False), "config")
        _check(config, digest, model=parsed.model, target=target)
        code, weights = _layer(manifest, CODE_TYPE), _layer(manifest, WEIGHTS_TYPE)
        return LocalArtifact(
            config=config,
            code=self._blob(code, progress=progress),
            weights=self._blob(weights, verify, progress=progress),
            manifest_digest=digest,
            code_digest=code.digest,
            weights_digest=weights.digest,
        )

    def _choose(self, resolved: ResolvedReference, target: str | None, *, prefix: str) -> Digest:
        where = f"{resolved.model}@{resolved.number}"
        candidates = [item for item in resolved.artifacts if item.digest.startswith(prefix)]
        if not candidates:
            raise NotReady(where=where, hint=f"To see its builds: pt2hub show {where}")
        if target:
            return self._select_artifact(candidates, target, where)
        choices = [(item, known_target(item.target)) for item in candidates]
        host = this_host(gpu=any(one is not None and one.device == "cuda" for _, one in choices))
        judged = [
            (item, self._assess(resolved.model, item.digest, one, host) if one else None)
            for item, one in choices
        ]
        fitting = [item for item, compatibility in judged if compatibility and compatibility.runs]
        if fitting:
            return max(fitting, key=_preference).digest
        if len(judged) == 1 and judged[0][1]:
            raise refusal(judged[0][1], where=f"{where} for {judged[0][0].target}", hint=advice(host))
        lacking = {item.target: str(compatibility or _NEWER_TARGET) for item, compatibility in judged}
        raise Incompatible(
            "No target of the version is compatible with this machine: "
            + "; ".join(f"{name} ({why})" for name, why in lacking.items()),
            where=where,
            hint=advice(host),
            context={"targets": lacking},
        )

    def _assess(self, model: str, digest: Digest, target: Target, host: Host) -> Compatibility:
        """Check an artifact against a machine; its config is read only if it may run on newer GPUs than its target's."""
        if not may_be_portable(target, host):
            return assess_compatibility(target, host)
        config = self._blob(self._manifest(model, digest).config, progress=False)
        return assess_compatibility(target, host, _document(ArtifactConfig, config, "config").native)

    def _select_artifact(self, candidates: list[ArtifactRef], target: str, where: str) -> Digest:
        found = {item.target: item.digest for item in candidates}
        if target not in found:
            parse_target(target)  # a name of no known form is said to be one
            raise NotFound(
                f"The version has no artifact for {target}",
                where=where,
                hint=f"Its targets: {', '.join(sorted(found))}. To add another, extend the spec and publish it again.",
            )
        return found[target]

    def _manifest(self, model: str, digest: Digest) -> Manifest:
        path = self._cache.find(digest, verify="always")
        if path is None:
            data = self._connect().read(f"/api/v1/models/{model}/manifests/{digest}")
            path = self._cache.get(digest, len(data), lambda: [data])
        return _document(Manifest, path, "manifest")

    def _blob(self, descriptor: Descriptor, verify: Verify = "always", *, progress: bool | None) -> Path:
        digest, size = descriptor.digest, descriptor.size

        def fetch() -> Iterator[bytes]:
            chunks = self._connect().stream(f"/api/v1/blobs/{digest}", size)
            return count_chunks(
                chunks, f"pulling {descriptor.annotations.get(TITLE, digest)}", size, progress
            )

        return self._cache.get(digest, size, fetch, verify=verify)


def resolve(transport: Transport, reference: str) -> ResolvedReference:
    """Resolve a reference on the server; see `Artifacts.resolve`."""
    from pt2hub.wire.resolution import ResolvedReference  # a pinned reference needs none of them

    Reference.parse(reference)
    return transport.fetch(ResolvedReference, "/api/v1/resolve", {"reference": reference})


def _check(config: ArtifactConfig, digest: Digest, *, model: str, target: str | None) -> None:
    """Refuse an artifact of another model, target or schema before large files are fetched."""
    if config.version.model != model:
        raise NotFound(
            f"{digest} belongs to {config.version.model}",
            where=model,
            hint=f"Use the reference {config.version.model}@{digest}.",
        )
    if config.schema > CONFIG_SCHEMA:
        raise ClientTooOld(
            f"The artifact's config has schema {config.schema}, this pt2hub reads up to {CONFIG_SCHEMA}",
            where=f"{model}@{digest}",
            hint="Upgrade with pip install --upgrade pt2hub.",
        )
    if target is None:
        check_host(config)
    elif config.target.name != target:
        raise NotFound(f"{digest} was built for {config.target}, not for {target}", where=model)


def known_target(name: str) -> Target | None:
    """Parse a target from a response; None if its name has a form that only a newer pt2hub knows."""
    try:
        return parse_target(name)
    except UnknownTarget:
        return None


def _preference(item: ArtifactRef) -> tuple[bool, str, str]:
    """Return a sort key: GPUs last, then by level (psABI names sort by it), then by age; the best sorts highest."""
    target = parse_target(item.target)
    return target.device == "cuda", target.arch, item.created_at


def _document(cls: type[T], path: Path, where: str) -> T:
    try:
        value: Any = json.loads(path.read_bytes())
    except ValueError as exc:
        raise BadResponse(f"The {where} is not JSON", where=str(path)) from exc
    return decode(cls, value, where=where)


def _layer(manifest: Manifest, media_type: str) -> Descriptor:
    found = manifest.layer(media_type)
    if found is None:
        raise BadResponse(
            f"The manifest has no layer of type {media_type}",
            where="manifest",
            hint="A newer pt2hub may have written it; upgrade this one.",
        )
    return found
