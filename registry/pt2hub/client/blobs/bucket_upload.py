"""Upload of a file to a bucket, with the caller's own credentials."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from pt2hub.domain.storage import S3_ADDRESS
from pt2hub.errors import BadConfiguration, StorageUnavailable
from pt2hub.extras import lacking

if TYPE_CHECKING:
    from pathlib import Path


def upload_file(path: Path, address: str) -> None:
    """Upload a file; an object that is there already is replaced.

    Args:
        address: `s3://bucket/key`.

    Raises:
        BadConfiguration: boto3 is not installed, or the address is invalid.
        StorageUnavailable: The bucket cannot be written.
    """
    match = S3_ADDRESS.fullmatch(address)
    key = (match["prefix"] or "").strip("/") if match else ""
    if match is None or not key:
        raise BadConfiguration(
            f"Invalid destination {address[:200]!r}", where="destination", hint="Use s3://bucket/path/name."
        )
    if find_spec("boto3") is None:
        raise lacking(f"Writing to {address}", ["boto3"])
    import boto3
    from boto3.exceptions import Boto3Error
    from boto3.s3.transfer import TransferConfig
    from botocore.exceptions import BotoCoreError, ClientError

    # The other transfer client ignores the endpoint and goes to AWS (docs/decisions/0007).
    transfer = TransferConfig(preferred_transfer_client="classic")
    try:
        boto3.client("s3").upload_file(str(path), match["bucket"], key, Config=transfer)
    except (Boto3Error, BotoCoreError, ClientError, ValueError) as exc:
        raise StorageUnavailable(
            f"Cannot write to the bucket: {exc}",
            where=address,
            hint="Check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL_S3, and that they allow s3:PutObject.",
        ) from exc
