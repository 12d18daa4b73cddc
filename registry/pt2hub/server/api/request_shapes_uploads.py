"""Request parameters and bodies about uploads."""

from typing import Annotated

from pydantic import Field

from pt2hub.server.api.request_shapes import ID_PATTERN, Body, DigestText, Parameters
from pt2hub.server.services.blobs.uploads import MAX_PRESIGNED_PARTS

MAX_OBJECT_BYTES = 1 << 50
"""More than any storage accepts; the server's own limit is lower and has its own error code."""
MAX_PARTS = 10_000
"""S3's limit of parts per upload."""


class UploadPath(Parameters):
    """An upload."""

    id: Annotated[str, Field(pattern=ID_PATTERN, max_length=64, description="Id of the upload")]


class UploadStart(Body):
    """Start of an upload."""

    digest: DigestText
    size: Annotated[int, Field(ge=0, le=MAX_OBJECT_BYTES, description="Size in bytes")]


class PartWanted(Body):
    """A part to presign."""

    number: Annotated[int, Field(ge=1, le=MAX_PARTS, description="Number of the part, from 1")]
    md5: Annotated[
        str, Field(pattern="^[A-Za-z0-9+/]{21}[AQgw]==$", description="MD5 of the part, base64-encoded")
    ]


class PartsWanted(Body):
    """Parts to presign."""

    parts: Annotated[
        list[PartWanted], Field(min_length=1, max_length=MAX_PRESIGNED_PARTS, description="In any order")
    ]


_ETag = Annotated[str, Field(pattern="^[!-~]+$", max_length=100)]


class UploadEnd(Body):
    """Completion of an upload."""

    etags: Annotated[
        tuple[_ETag, ...],
        Field(
            strict=False,
            max_length=MAX_PARTS,
            description="The `ETag` of each part, in order; empty for an upload in one request",
        ),
    ] = ()
