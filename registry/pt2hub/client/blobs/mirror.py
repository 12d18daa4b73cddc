"""Download of single blobs and manifests by digest, as another server's operator needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.client.blobs.cache import BlobCache
from pt2hub.client.http.paths import model_path
from pt2hub.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pt2hub.client.http.transport import Transport
    from pt2hub.domain.digests import Digest


def fetch(
    transport: Transport, digest: Digest, folder: Path, models: Sequence[str], *, progress: bool | None
) -> Path:
    """Download a blob, or a manifest of one of some models; see `Blobs.fetch`."""
    cache = BlobCache(folder)
    for model in models:
        try:
            return cache.put(digest, transport.read(f"{model_path(model)}/manifests/{digest}"))
        except NotFound:
            continue
    path = f"/api/v1/blobs/{digest}"
    size = transport.size(path)
    title = f"fetching {digest[:19]}"
    return cache.get(
        digest, size, lambda: transport.blob(path, size), verify="always", title=title, progress=progress
    )
