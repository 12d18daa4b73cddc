"""Artifacts of a server, and what is recorded about their code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.client.http.paths import debug_log_path
from pt2hub.client.resources import Resource
from pt2hub.domain.digests import canonical_json

if TYPE_CHECKING:
    from pt2hub.domain.compatibility.hosts import Host
    from pt2hub.domain.digests import Digest
    from pt2hub.wire.artifacts import ArtifactView
    from pt2hub.wire.debug_logs import DebugLogsView, DebugLogView
    from pt2hub.wire.differences import DiffView
    from pt2hub.wire.host_checks import HostCheck
    from pt2hub.wire.kernels import KernelsView
    from pt2hub.wire.profiles import ProfileView
    from pt2hub.wire.resolution import ResolvedReference


class Artifacts(Resource):
    """Artifacts of builds."""

    def get(self, digest: Digest) -> ArtifactView:
        """Return an artifact with config, manifest, members, autotuning and measurements."""
        from pt2hub.wire.artifacts import ArtifactView

        return self._transport.fetch(ArtifactView, f"/api/v1/artifacts/{digest}")

    def diff(
        self, before: str, after: str, target: str | None = None, with_target: str | None = None
    ) -> DiffView:
        """Return the differences between two artifacts: spec, program key, graph, kernels, sizes, speed and numerics.

            print(client.artifacts.diff("vision/resnet18@2", "vision/resnet18@3").key.reasons)

        Args:
            after: Another reference, or the same for two targets of one version.
            target: Target of both artifacts; where omitted the only one that both have.
            with_target: Target of the second artifact, if it differs.

        Raises:
            NotFound: A version does not exist or has no artifact for the target.
            NotReady: A version has no artifact yet.
            Ambiguous: The versions have several targets in common; the hint lists them.
            InvalidInput: Both are the same artifact, or a reference is invalid.
        """
        from pt2hub.wire.differences import DiffView

        given = {"before": before, "after": after, "target": target, "with_target": with_target}
        query = {name: value for name, value in given.items() if value is not None}
        return self._transport.fetch(DiffView, "/api/v1/diff", query)

    def kernels(self, digest: Digest) -> KernelsView:
        """Return the kernels of an artifact, and the operations of the exported graph that each holds.

        Raises:
            NotFound: The artifact does not exist.
            NotRecorded: No kernels are recorded for its code.
        """
        from pt2hub.wire.kernels import KernelsView

        return self._transport.fetch(KernelsView, f"/api/v1/artifacts/{digest}/kernels")

    def profile(self, digest: Digest) -> ProfileView:
        """Return where the time of an artifact's calls goes, beside torch.compile's, and what each kernel computes.

        Raises:
            NotFound: The artifact does not exist.
            NotRecorded: The artifact has no profile.
        """
        from pt2hub.wire.profiles import ProfileView

        return self._transport.fetch(ProfileView, f"/api/v1/artifacts/{digest}/profile")

    def debug_logs(self, digest: Digest) -> DebugLogsView:
        """Return which of torch's logs of the compile are recorded for an artifact's code.

        Raises:
            NotFound: The artifact does not exist.
            NotRecorded: No debug logs are recorded for its code.
        """
        from pt2hub.wire.debug_logs import DebugLogsView

        return self._transport.fetch(DebugLogsView, f"/api/v1/artifacts/{digest}/debug")

    def debug_log(self, digest: Digest, kind: str) -> DebugLogView:
        """Return one of torch's logs of the compile of an artifact's code.

            print(client.artifacts.debug_log(digest, "fusion").text)

        Args:
            kind: `output_code`, `fusion`, `schedule` or `graph`.

        Raises:
            InvalidInput: There is no such kind.
            NotFound: The artifact does not exist.
            NotRecorded: The log is not recorded for its code.
        """
        from pt2hub.wire.debug_logs import DebugLogView

        return self._transport.fetch(DebugLogView, debug_log_path(digest, kind))

    def resolve(self, reference: str) -> ResolvedReference:
        """Resolve a reference to a version and its artifacts, by digest.

        Raises:
            InvalidInput: The reference is invalid.
            NotFound: The model or version does not exist.
        """
        from pt2hub.client.artifacts.puller import resolve

        return resolve(self._transport, reference)

    def check(self, reference: str, host: Host | None = None) -> HostCheck:
        """Check which artifacts of a version run on a machine, and which one suits it best; nothing is downloaded.

            print(client.artifacts.check("vision/resnet18@prod"))

        Args:
            host: The machine, such as `parse_host(json.load(file))`; this one if omitted.

        Raises:
            InvalidInput: The reference is invalid.
            NotFound: The model or version does not exist.
            NotReady: The version has no artifact yet.
        """
        from pt2hub.client.machine.host import whole_host
        from pt2hub.wire.host_checks import HostCheck

        body = {"reference": reference, "host": (host or whole_host()).as_document()}
        return self._transport.ask(HostCheck, "POST", "/api/v1/resolve", canonical_json(body))
