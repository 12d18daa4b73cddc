"""Request parameters and bodies about attached files."""

from typing import Annotated

from pydantic import Field

from pt2hub.domain.attached_files.kinds import DOCUMENTATION_KINDS
from pt2hub.server.api.request_shapes import Body, DigestText, VersionPath


class FilePath(VersionPath):
    """An attached file of a version."""

    file: Annotated[str, Field(max_length=400, description="Name of the file, such as `README.md`")]


class FileOrder(Body):
    """A documentation file to add to a version."""

    digest: DigestText
    kind: Annotated[
        str | None,
        Field(
            max_length=80,
            description=f"One of {', '.join(DOCUMENTATION_KINDS)}; by default what the name suggests",
        ),
    ] = None
    media_type: Annotated[
        str | None, Field(max_length=400, description="Media type; by default what the name suggests")
    ] = None
