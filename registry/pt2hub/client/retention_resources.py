"""Deletion and retention policies of a server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from pt2hub.client.http.paths import build_path, model_path
from pt2hub.client.resources import Resource
from pt2hub.domain.limits import MAX_REASON_CHARS
from pt2hub.errors import InvalidInput
from pt2hub.wire.retention import DeletionView, RetentionPreview, RetentionView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.domain.digests import Digest

_PATH = "/api/v1/retention"


class Retention(Resource):
    """Deletes versions, models, builds and blobs, and sets retention policies; all of it requires an admin token."""

    def delete_version(  # noqa: PLR0913  # all by name
        self,
        model: str,
        number: int,
        *,
        reason: str = "",
        dry_run: bool = False,
        force: bool = False,
        also: Sequence[str] = (),
        also_sharing: bool = False,
        keep_shared: bool = False,
    ) -> DeletionView:
        """Delete a version.

        Args:
            reason: Required unless it is a dry run; the tombstone keeps it.
            dry_run: Only return what would be done.
            force: Remove its bytes at once, with aliases on it, and refuse their digests from then on.
            also: With `force`: further versions, `team/name@4`, that share its bytes.
            also_sharing: With `force`: delete every version that shares its bytes, and those that share theirs.
            keep_shared: With `force`: leave blobs served that other versions need.

        Raises:
            NotFound: The version does not exist.
            StillNeeded: Something needs it.
            Forbidden: The token is not an admin's.
        """
        query = [*_query(reason, dry_run), *(("also", name) for name in also)]
        flags = {"force": force, "also_sharing": also_sharing, "keep_shared": keep_shared}
        query += [(name, "true") for name, is_set in flags.items() if is_set]
        return self._delete(f"{model_path(model)}/versions/{number}", query)

    def delete_model(self, model: str, *, reason: str = "", dry_run: bool = False) -> DeletionView:
        """Delete a model with all its versions; errors as for `delete_version`."""
        return self._delete(model_path(model), _query(reason, dry_run))

    def delete_build(self, build: str, *, reason: str = "", dry_run: bool = False) -> DeletionView:
        """Delete a build with its artifact; errors as for `delete_version`."""
        return self._delete(build_path(build), _query(reason, dry_run))

    def delete_blob(self, digest: Digest, *, dry_run: bool = False) -> DeletionView:
        """Delete a blob to which nothing refers; errors as for `delete_version`."""
        return self._delete(f"/api/v1/blobs/{digest}", _query("", dry_run))

    def policy(self, scope: str) -> RetentionView:
        """Return the retention policy that holds for a model or a team."""
        return self._transport.fetch(RetentionView, _PATH, {"scope": scope})

    def set_policy(
        self, scope: str, *, last: int | None = None, pulled_within_days: int | None = None
    ) -> RetentionView:
        """Set the retention policy of a model or a team.

        Args:
            last: How many of the newest versions are kept; None keeps everything.
            pulled_within_days: Versions that were pulled within so many days are kept too.
        """
        body = {"scope": scope, "last": last, "pulled_within_days": pulled_within_days}
        return self._transport.ask(RetentionView, "PUT", _PATH, json.dumps(body).encode())

    def remove_policy(self, scope: str) -> RetentionView:
        """Remove the policy of a model or a team; return the one that holds from now on.

        Raises:
            NotFound: No policy is set on it.
        """
        return self._transport.ask(RetentionView, "DELETE", f"{_PATH}?{urlencode({'scope': scope})}")

    def preview(self, scope: str) -> RetentionPreview:
        """Return what the policies of a model or a team would delete now."""
        return self._transport.fetch(RetentionPreview, f"{_PATH}/preview", {"scope": scope})

    def _delete(self, path: str, query: Sequence[tuple[str, str]]) -> DeletionView:
        return self._transport.ask(DeletionView, "DELETE", f"{path}?{urlencode(query)}" if query else path)


def _query(reason: str, dry_run: bool) -> list[tuple[str, str]]:
    if len(reason) > MAX_REASON_CHARS:  # in the URL, which may be too long for the server to read
        raise InvalidInput(
            f"The reason is too long ({len(reason):,} characters, at most {MAX_REASON_CHARS})",
            where="reason",
            hint=f"Give the reason in 1 to {MAX_REASON_CHARS} characters.",
        )
    return [("reason", reason)] * bool(reason) + [("dry_run", "true")] * dry_run
