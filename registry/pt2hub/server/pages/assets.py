"""Built styles and scripts, served under names that contain their digests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from flask import Response, abort

PREFIX = "/static"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
_CACHE_FOREVER = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class Assets:
    """The files that `web/build.py` built, kept in memory because a later build may replace them on disk.

    Attributes:
        names: Served name by plain name, from `assets.json`; empty if nothing was built.
        files: Bytes by served name.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path | None) -> Assets:
        """Read the built files of a folder."""
        if folder is None:
            return cls()
        names: dict[str, str] = json.loads((folder / "assets.json").read_text())
        return cls(names, {name: (folder / name).read_bytes() for name in names.values()})

    def url(self, name: str) -> str | None:
        """Return the URL of a file, or None if it was not built.

        Args:
            name: Its plain name, such as `pages.css`.
        """
        served = self.names.get(name)
        return f"{PREFIX}/{served}" if served else None

    def serve(self, name: str) -> Response:
        """Return a built file, cacheable forever because its name contains its digest."""
        if name not in self.names.values():
            abort(404)
        response = Response(self.files[name], content_type=_TYPES[Path(name).suffix])
        response.headers["Cache-Control"] = _CACHE_FOREVER
        return response
