"""Built styles and scripts: found by their plain names, served under names that hold their digests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from flask import Response, abort

from pt2hub.server.pages.compressing import takes_gzip

PREFIX = "/static"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
_FOR_EVER = "public, max-age=31536000, immutable"
_COMPRESSED = ".gz"


@dataclass(frozen=True, slots=True)
class Assets:
    """What `web/build.py` made, kept in memory: a few hundred kilobytes, which a later build may replace on the disk.

    Attributes:
        names: Served name by plain name, as `assets.json` says it; nothing where nothing was built.
        files: Bytes by served name; a compressed copy has `.gz` after it.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path | None) -> Assets:
        """Reads what was built into a folder."""
        if folder is None:
            return cls()
        names: dict[str, str] = json.loads((folder / "assets.json").read_text())
        served = [name + end for name in names.values() for end in ("", _COMPRESSED)]
        return cls(names, {name: (folder / name).read_bytes() for name in served})

    def address(self, name: str) -> str | None:
        """Where a file is served, None where it was not built.

        Args:
            name: Its plain name, such as `pages.css`.
        """
        served = self.names.get(name)
        return f"{PREFIX}/{served}" if served else None

    def serve(self, name: str) -> Response:
        """A built file, compressed as its reader takes it; names hold digests, so that it may be kept for ever."""
        if name not in self.names.values():
            abort(404)
        response = Response(content_type=_TYPES[Path(name).suffix])
        response.headers["Cache-Control"] = _FOR_EVER
        response.vary.add("Accept-Encoding")
        if takes_gzip():
            response.content_encoding = "gzip"
            name += _COMPRESSED
        response.set_data(self.files[name])
        return response
