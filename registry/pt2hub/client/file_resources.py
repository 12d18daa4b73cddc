"""Attached files of versions on a server."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pt2hub.client.http.paths import file_path, files_path
from pt2hub.client.publishing.attached_files import existing_file
from pt2hub.client.resources import Blobs, Resource
from pt2hub.domain.attached_files.names import check_name
from pt2hub.domain.digests import canonical_json
from pt2hub.errors import HomeUnusable, NotFound
from pt2hub.wire.files import FileList

if TYPE_CHECKING:
    from pt2hub.client.blobs.cache import BlobCache
    from pt2hub.client.http.transport import Transport
    from pt2hub.wire.files import FileView


class Files(Resource):
    """Attached files of versions."""

    def __init__(self, transport: Transport, cache: BlobCache) -> None:
        super().__init__(transport)
        self._cache = cache

    def list(self, model: str, number: int) -> FileList:
        """Return the attached files of a version, documentation as it is now.

        Raises:
            NotFound: The version does not exist.
        """
        return self._transport.fetch(FileList, files_path(model, number))

    def get(
        self,
        model: str,
        number: int,
        name: str,
        out: str | Path | None = None,
        *,
        progress: bool | None = False,
    ) -> Path:
        """Download a file, verified, as it is now; what a pull brings is as it was published.

            client.files.get("vision/resnet18", 3, "README.md", "card.md")

        Args:
            out: Where to write a copy; without it the path of the cached file is returned.
            progress: Whether to show the download; None for only on a terminal or in a notebook.

        Raises:
            NotFound: The version or the file does not exist.
            HomeUnusable: The copy cannot be written.
        """
        found = self._find(model, number, name)
        source = partial(self._transport.blob, f"/api/v1/blobs/{found.digest}", found.size)
        title = f"pulling {found.name}"
        path = self._cache.get(found.digest, found.size, source, title=title, progress=progress)
        return path if out is None else _copy(path, Path(out))

    def add(  # noqa: PLR0913  # each is an option by name
        self,
        model: str,
        number: int,
        path: str | Path,
        *,
        name: str | None = None,
        kind: str | None = None,
        media_type: str | None = None,
        progress: bool | None = False,
    ) -> FileList:
        """Add a documentation file to a version, or replace it; what is pinned stays as it is.

            client.files.add("vision/resnet18", 3, "README.md")

        Args:
            name: Its name in the version; that of the path if omitted.
            kind: `card`, `license`, `example` or `document`; what the name suggests if omitted.
            media_type: Media type; what the name suggests if omitted.

        Raises:
            InvalidInput: Name, kind or media type is malformed; each has a code of its own. Or it is a folder.
            EmptyFile: The file is empty.
            FileFixed: It is not documentation, which only a publication can bring.
            NotFound: The version or the file does not exist.
        """
        file = existing_file(name or Path(path).name, Path(path))  # first: a path of no file is often no name
        called = check_name(name or file.name)
        digest = Blobs(self._transport).upload(file, progress=progress)
        given = {"digest": digest, "kind": kind, "media_type": media_type}
        body = canonical_json({key: value for key, value in given.items() if value is not None})
        return self._transport.ask(FileList, "PUT", file_path(model, number, called), body)

    def remove(self, model: str, number: int, name: str) -> FileList:
        """Remove a documentation file from a version; what is pinned still has it.

        Raises:
            FileFixed: It is not documentation.
            NotFound: The version or the file does not exist.
        """
        return self._transport.ask(FileList, "DELETE", file_path(model, number, name))

    def _find(self, model: str, number: int, name: str) -> FileView:
        files = self.list(model, number).files
        for item in files:
            if item.name == name:
                return item
        listed = ", ".join(item.name for item in files) or "none"
        raise NotFound(
            f"File {name[:80]!a} not found", where=f"{model}@{number}", hint=f"Its files: {listed}."
        )


def _copy(path: Path, out: Path) -> Path:
    import shutil

    try:
        shutil.copyfile(path, out)
    except OSError as exc:
        raise HomeUnusable(
            f"Cannot write the file: {exc.strerror or exc}", where=str(out), hint="Choose another place."
        ) from exc
    return out
