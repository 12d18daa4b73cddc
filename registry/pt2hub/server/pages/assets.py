"""Built styles and scripts: found by their plain names, served under names that hold their digests."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from flask import Response, abort, request

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "/static"
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_FOR_EVER = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class Assets:
    """What `web/build.py` made.

    Attributes:
        folder: Where it lies, None where nothing was built.
        names: Served name by plain name, as `assets.json` says it.
    """

    folder: Path | None
    names: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path | None) -> Assets:
        """Reads what was built into a folder."""
        return cls(folder, json.loads((folder / "assets.json").read_text())) if folder else cls(None)

    def address(self, name: str) -> str | None:
        """Where a file is served, None where it was not built.

        Args:
            name: Its plain name, such as `pages.css`.
        """
        served = self.names.get(name)
        return f"{PREFIX}/{served}" if served else None

    def serve(self, name: str) -> Response:
        """A built file, compressed as its reader takes it; names hold digests, so that it may be kept for ever."""
        if self.folder is None or name not in self.names.values():
            abort(404)
        response = Response(content_type=_TYPES[Path(name).suffix])
        response.headers["Cache-Control"] = _FOR_EVER
        response.vary.add("Accept-Encoding")
        file = self.folder / name
        if "gzip" in request.accept_encodings:
            file = file.with_name(f"{name}.gz")
            response.content_encoding = "gzip"
        response.set_data(file.read_bytes())
        return response
