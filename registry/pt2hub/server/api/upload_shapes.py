"""Uploads, as OpenAPI describes them."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, RootModel

from pt2hub.server.api.shapes import ID_PATTERN, DigestText, Parameters
from pt2hub.server.services.upload_parts import MOST_PARTS_SIGNED
from pt2hub.wire.uploads import PartRequests, UploadView

MAX_OBJECT_BYTES = 1 << 50
"""More than any storage takes as one object; the server's own limit is lower, and refuses with a code of its own."""
MAX_PARTS = 10_000
"""Of one upload, as S3 has it."""


class UploadPath(Parameters):
    """An upload."""

    id: Annotated[str, Field(pattern=ID_PATTERN, max_length=64, description="The upload's id")]


class UploadStart(BaseModel):
    """What is to be uploaded."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    digest: DigestText
    size: Annotated[int, Field(ge=0, le=MAX_OBJECT_BYTES, description="Number of bytes")]


class PartWanted(BaseModel):
    """A part that is to be sent."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    number: Annotated[int, Field(ge=1, le=MAX_PARTS, description="Which part, from 1")]
    md5: Annotated[
        str, Field(pattern="^[A-Za-z0-9+/]{21}[AQgw]==$", description="MD5 of its bytes, base64 of 16 bytes")
    ]


class PartsWanted(BaseModel):
    """Parts that are to be sent next."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    parts: Annotated[
        list[PartWanted], Field(min_length=1, max_length=MOST_PARTS_SIGNED, description="In any order")
    ]


_ETag = Annotated[str, Field(pattern="^[!-~]+$", max_length=100)]


class UploadEnd(BaseModel):
    """What the storage answered."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    etags: Annotated[
        list[_ETag],
        Field(
            max_length=MAX_PARTS,
            description="The `ETag` of each part, in their order; none where one request sent everything",
        ),
    ] = []


class Upload(RootModel[UploadView]):
    """An upload, and what is to be done next."""


class Parts(RootModel[PartRequests]):
    """Where parts go."""
