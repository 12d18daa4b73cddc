"""Notes on environment variables that pt2hub does not know, which would otherwise silently do nothing."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from pt2hub.cli.output import note

if TYPE_CHECKING:
    from collections.abc import Mapping

SETTINGS = frozenset(
    {
        "PT2HUB_API_PROCESSES",
        "PT2HUB_BUILD_DISK",
        "PT2HUB_BUILD_ENV",
        "PT2HUB_BUILD_MEMORY",
        "PT2HUB_BUILD_PROCESSES",
        "PT2HUB_BUILD_TMP",
        "PT2HUB_BWRAP",
        "PT2HUB_CACHE",
        "PT2HUB_COLLECT_EVERY_SECONDS",
        "PT2HUB_COLLECT_GRACE_SECONDS",
        "PT2HUB_CONCURRENCY",
        "PT2HUB_CPU_LEVEL",
        "PT2HUB_DATABASE_URL",
        "PT2HUB_DRAIN_SECONDS",
        "PT2HUB_FACTORIES",
        "PT2HUB_GRACE_SECONDS",
        "PT2HUB_HEADERS",
        "PT2HUB_HEARTBEAT_SECONDS",
        "PT2HUB_HOME",
        "PT2HUB_HOST",
        "PT2HUB_ID_TOKEN",
        "PT2HUB_IMAGE",
        "PT2HUB_ISOLATION",
        "PT2HUB_KEEP_LOGS_DAYS",
        "PT2HUB_LOG_LEVEL",
        "PT2HUB_LOST_WORKER_SECONDS",
        "PT2HUB_MAX_AGE",
        "PT2HUB_MAX_BLOB_BYTES",
        "PT2HUB_MAX_REQUESTS",
        "PT2HUB_MAX_SIGN_INS",
        "PT2HUB_MAX_TEAM_BUILDS",
        "PT2HUB_MAX_TEAM_BYTES",
        "PT2HUB_MAX_UPLOADS",
        "PT2HUB_MAX_WAITS",
        "PT2HUB_NOOP_PAUSES",
        "PT2HUB_OFFLINE",
        "PT2HUB_OIDC_CLIENT_ID",
        "PT2HUB_OIDC_CLIENT_SECRET",
        "PT2HUB_OIDC_CLIENT_SECRET_FILE",
        "PT2HUB_OIDC_GROUPS_CLAIM",
        "PT2HUB_OIDC_ISSUER",
        "PT2HUB_OIDC_LABEL",
        "PT2HUB_OIDC_NAME_CLAIM",
        "PT2HUB_OIDC_SCOPES",
        "PT2HUB_PORT",
        "PT2HUB_PUBLIC_URL",
        "PT2HUB_READ",
        "PT2HUB_READ_BEYOND_LOOPBACK",
        "PT2HUB_S3_PUBLIC_ENDPOINT_URL",
        "PT2HUB_SANDBOX_READABLE",
        "PT2HUB_SCRATCH",
        "PT2HUB_SCRUB_BYTES_PER_S",
        "PT2HUB_SHARED_CACHE",
        "PT2HUB_STORAGE",
        "PT2HUB_TOKEN",
        "PT2HUB_TOOLCHAIN",
        "PT2HUB_TORCHVISION_MIRROR",
        "PT2HUB_TRUSTED_PROXIES",
        "PT2HUB_URL",
        "PT2HUB_VERIFICATION_SECONDS",
        "PT2HUB_WEBHOOK_ALLOW",
        "PT2HUB_WORKER_TARGET",
    }
)
"""All settings, as `docs/how-to/settings.md` lists them."""


def note_unknown_settings(environ: Mapping[str, str]) -> None:
    """Name the `PT2HUB_` variables that are no settings on stderr, each with the setting that may be meant."""
    for name in sorted(environ):
        if name.startswith("PT2HUB_") and name not in SETTINGS:
            similar = difflib.get_close_matches(name, SETTINGS, n=1, cutoff=0.8)
            advice = (
                f"Did you mean {similar[0]}?" if similar else "docs/how-to/settings.md lists the settings."
            )
            note(f"{name} is not a setting of pt2hub and has no effect. {advice}")
