"""Snippets that load a version: in Python, on the command line, with a lock file, with curl."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.rendering.targets import short_target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.server.views.artifact_summaries import ArtifactSummary


@dataclass(frozen=True, slots=True)
class Snippet:
    """A way to load a version.

    Attributes:
        note: What it does.
    """

    label: str
    text: str
    note: str


def compose_snippets(
    reference: str, artifacts: Sequence[ArtifactSummary], *, site: str, needs_token: bool
) -> list[Snippet]:
    """Return the ways to load a version; none without an artifact.

    Args:
        site: Address of this server, with a slash at its end.
        needs_token: Whether reading requires a token.
    """
    if not artifacts:
        return []
    first = artifacts[0]
    token = '-H "Authorization: Bearer $PT2HUB_TOKEN" ' if needs_token else ""
    url = f"{site}api/v1/artifacts/{first.digest}/model.pt2"
    return [
        Snippet(
            "Python",
            f'import pt2hub\n\nmodel = pt2hub.load("{reference}")',
            "Loads the artifact that fits this machine.",
        ),
        Snippet(
            "CLI",
            f"pt2hub pull {reference} -o model.pt2",
            "Writes one file; without -o, the artifact goes to the cache.",
        ),
        Snippet("Lock", f"pt2hub lock {reference}", "Pins the version and its digests in pt2hub.lock."),
        Snippet(
            "curl",
            f"curl --fail --location {token}--output model.pt2 \\\n  {url}",
            f"Downloads the artifact for {short_target(first.target, [item.target for item in artifacts])}.",
        ),
    ]
