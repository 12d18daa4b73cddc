"""Translation of botocore errors."""

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
_RIGHTS = "Allow these credentials to list, read, write and delete in the bucket."
_REGION = "Set AWS_DEFAULT_REGION to the bucket's region."
_SETTINGS = {
    "AccessDenied": _RIGHTS,
    "AllAccessDisabled": _RIGHTS,
    "403": f"{_KEYS}, and their permissions on the bucket.",
    "AuthorizationHeaderMalformed": _REGION,
    "ExpiredToken": "The credentials have expired: get new ones.",
    "IllegalLocationConstraintException": _REGION,
    "InvalidAccessKeyId": "Check AWS_ACCESS_KEY_ID.",
    "InvalidBucketName": "Correct the bucket in PT2HUB_STORAGE.",
    "InvalidConfigError": "Correct the file at AWS_CONFIG_FILE.",
    "InvalidToken": "Check AWS_SESSION_TOKEN.",
    "NoCredentialsError": "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
    "NoRegionError": _REGION,
    "NoSuchBucket": "Create the bucket, or correct PT2HUB_STORAGE.",
    "PartialCredentialsError": "Set both AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
    "PermanentRedirect": _REGION,
    "ProfileNotFound": "Correct AWS_PROFILE.",
    "SignatureDoesNotMatch": "Check AWS_SECRET_ACCESS_KEY and AWS_DEFAULT_REGION.",
}
"""Hints for error codes that indicate a wrong configuration; a retry does not help."""
_HINTS = _SETTINGS | {
    "BadDigest": "The content was changed in transit. Try again; if this repeats, check the network and proxies.",
    "ConditionalRequestConflict": "The object is being written concurrently; try again later.",
    "EndpointConnectionError": "Check AWS_ENDPOINT_URL_S3 and that the S3 server is running.",
    "RequestTimeTooSkewed": "Synchronize the clocks of this machine and the S3 server.",
    "SlowDown": "The S3 server is overloaded; try again later or run fewer workers.",
}


@contextmanager
def translate_errors(where: str) -> Iterator[None]:
    """Translate botocore errors, without repeating requests or credentials.

    Args:
        where: `s3://bucket/key`.

    Raises:
        NotFound: The object does not exist.
        StorageFull: S3 has no space left, or the bucket's quota is exhausted.
        StorageUnavailable: Anything else.
    """
    try:
        yield
    except ClientError as error:
        code = code_of(error)
        if code in {"NoSuchKey", "404"}:
            raise NotFound("Object not found in S3.", where=where) from error
        if status_of(error) == _INSUFFICIENT_STORAGE or code in FULL_CODES:
            raise StorageFull(
                f"S3 returned {code}.",
                where=where,
                hint="Free space on the S3 server, raise the bucket's quota, or add disks.",
                context={"s3_code": code},
            ) from error
        raise unavailable(where, code) from error
    except BotoCoreError as error:
        name = type(error).__name__
        raise unavailable(where, name, message=f"The request to S3 failed: {name}.") from error


@contextmanager
def translate_configuration_errors() -> Iterator[None]:
    """Translate errors that the configuration causes.

    Raises:
        BadConfiguration: The bucket does not exist, or the credentials are invalid or lack permissions.
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


def unavailable(where: str, code: str, *, message: str | None = None) -> StorageUnavailable:
    """Create the error for an S3 error code, with a hint.

    Args:
        where: `s3://bucket/key`.
        code: S3's code, or the name of botocore's error.
        message: What happened, if S3 did not respond.
    """
    return StorageUnavailable(
        message or f"S3 returned {code}.",
        where=where,
        hint=_HINTS.get(code, "Try again; if this repeats, check the S3 server's log."),
        context={"s3_code": code},
    )


def status_of(error: ClientError) -> int:
    """Return the HTTP status of an error."""
    return error.response["ResponseMetadata"]["HTTPStatusCode"]


def code_of(error: ClientError) -> str:
    """Return S3's error code, or the HTTP status if there is no plain code."""
    code = str(error.response["Error"].get("Code", ""))
    return code if _PLAIN.fullmatch(code) else str(status_of(error))
