"""The seam of S3: errors of botocore become ours."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from pt2hub.errors import BadConfiguration, NotFound, StorageFull, StorageUnavailable
from pt2hub.wire.uploads import FULL_CODES

if TYPE_CHECKING:
    from collections.abc import Iterator

_PLAIN = re.compile(r"[A-Za-z0-9._-]{1,80}")
_INSUFFICIENT_STORAGE = 507
_KEYS = "Check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
_RIGHTS = "Give these credentials the right to list, read, write and delete in the bucket."
_REGION = "Set AWS_DEFAULT_REGION to the bucket's region."
_SETTINGS = {
    "AccessDenied": _RIGHTS,
    "AllAccessDisabled": _RIGHTS,
    "403": f"{_KEYS}, and their rights on the bucket.",
    "AuthorizationHeaderMalformed": _REGION,
    "ExpiredToken": "The credentials ran out: get new ones.",
    "IllegalLocationConstraintException": _REGION,
    "InvalidAccessKeyId": "Check AWS_ACCESS_KEY_ID.",
    "InvalidBucketName": "Correct the bucket in PT2HUB_STORAGE.",
    "InvalidConfigError": "Correct the file that AWS_CONFIG_FILE names.",
    "InvalidToken": "Check AWS_SESSION_TOKEN.",
    "NoCredentialsError": "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
    "NoRegionError": _REGION,
    "NoSuchBucket": "Create the bucket, or correct PT2HUB_STORAGE.",
    "PartialCredentialsError": "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, both of them.",
    "PermanentRedirect": _REGION,
    "ProfileNotFound": "Correct AWS_PROFILE.",
    "SignatureDoesNotMatch": "Check AWS_SECRET_ACCESS_KEY and AWS_DEFAULT_REGION.",
}
"""What is wrong with the settings where S3 answers so; another try does not help."""
_HINTS = _SETTINGS | {
    "BadDigest": "Bytes were changed on their way. Try again; if it stays so, look for what changes them.",
    "ConditionalRequestConflict": "Others write the same object all the time; try again later.",
    "EndpointConnectionError": "Check AWS_ENDPOINT_URL_S3 and that the S3 server runs.",
    "RequestTimeTooSkewed": "Set this machine's clock, and the S3 server's.",
    "SlowDown": "The S3 server is overloaded; try again later, or give it fewer workers.",
}


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Turns errors of botocore into ours; no request and no credential is repeated in them.

    Args:
        where: `s3://bucket/key`.

    Raises:
        NotFound: There is no such object.
        StorageFull: S3 has no room, or the bucket's share of it is used up.
        StorageUnavailable: Anything else.
    """
    try:
        yield
    except ClientError as error:
        code = code_of(error)
        if code in {"NoSuchKey", "404"}:
            raise NotFound("Nothing is stored there.", where=where) from error
        if status_of(error) == _INSUFFICIENT_STORAGE or code in FULL_CODES:
            raise StorageFull(
                f"S3 answered {code}.",
                where=where,
                hint="Free space on the S3 server, raise the bucket's quota, or add disks.",
                context={"s3_code": code},
            ) from error
        raise unavailable(where, code) from error
    except BotoCoreError as error:
        name = type(error).__name__
        raise unavailable(where, name, said=f"The request to S3 failed: {name}.") from error


@contextmanager
def configured() -> Iterator[None]:
    """Has what the settings are to blame for said as such.

    Raises:
        BadConfiguration: There is no such bucket, or the credentials are wrong or have too few rights.
    """
    try:
        yield
    except StorageUnavailable as error:
        if error.context.get("s3_code") not in _SETTINGS:
            raise
        raise BadConfiguration(
            f"{error.message.rstrip('.')} for {error.where}.",
            where="PT2HUB_STORAGE",
            hint=error.hint,
            context=error.context,
        ) from error


def unavailable(where: str, code: str, *, said: str | None = None) -> StorageUnavailable:
    """The error for an answer of S3, with what to do about it.

    Args:
        where: `s3://bucket/key`.
        code: S3's code, or the name of botocore's error.
        said: What happened, where S3 did not answer.
    """
    return StorageUnavailable(
        said or f"S3 answered {code}.",
        where=where,
        hint=_HINTS.get(code, "Try again; if it stays so, look at the S3 server's log."),
        context={"s3_code": code},
    )


def status_of(error: ClientError) -> int:
    """The HTTP status."""
    return error.response["ResponseMetadata"]["HTTPStatusCode"]


def code_of(error: ClientError) -> str:
    """S3's code, or the status where it sent none that is a plain word."""
    code = str(error.response["Error"].get("Code", ""))
    return code if _PLAIN.fullmatch(code) else str(status_of(error))
