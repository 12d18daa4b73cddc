"""S3 clients, configured by boto3's usual variables and files."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import boto3
import botocore.session
from botocore.config import Config
from botocore.loaders import Loader, create_loader

from pt2hub.domain.storage import is_aws
from pt2hub.errors import BadConfiguration

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

TRIES = 8
"""How often a request is sent that S3 answers with 500, 503 SlowDown and the like, or whose connection breaks, unless
AWS_MAX_ATTEMPTS says otherwise. The waits between them are drawn from ever longer spans: 35 s in all on average after
SlowDown, 3 s after other errors (botocore's standard mode)."""
ASKING_TRIES = 4
"""How often a question is sent at most: an API thread waits for the answer."""
ASKING_SECONDS = 10.0
"""How long one may go without an answer. S3 has looked long before; only data, and putting parts together, take more."""
_CONFIG = Config(
    connect_timeout=5,
    read_timeout=60,
    max_pool_connections=32,
    # Without it, botocore signs addresses by the old scheme in some regions, which binds no header.
    signature_version="s3v4",
    # Every upload carries a digest of ours; the default's CRC trailers are unknown to some servers.
    request_checksum_calculation="when_required",
    response_checksum_validation="when_required",
)


def connect(endpoint: str | None = None, *, asking: bool = False) -> S3Client:
    """Create a client without sending a request.

    Args:
        endpoint: Address of the server, where it is not the one of boto3's settings.
        asking: It only asks what is there (HEAD and lists), and gives up on a server that says nothing within a
            minute instead of eight.

    Raises:
        BadConfiguration: The address is none.
    """
    try:
        return _connect(endpoint, asking=asking)
    except ValueError as error:  # botocore's, and it names the address
        raise BadConfiguration(
            f"invalid boto3 configuration: {error}",
            where="AWS_ENDPOINT_URL_S3",
            hint="Use a complete URL such as http://127.0.0.1:8333.",
        ) from error


def _connect(endpoint: str | None, *, asking: bool) -> S3Client:
    core = botocore.session.get_session()
    core.register_component("data_loader", _loader())
    session = boto3.session.Session(botocore_session=core)
    tries = core.get_config_variable("max_attempts") or TRIES
    config = _CONFIG
    if asking:
        tries = min(tries, ASKING_TRIES)
        config = config.merge(Config(connect_timeout=3, read_timeout=ASKING_SECONDS))
    config = config.merge(Config(retries={"mode": "standard", "total_max_attempts": tries}))
    client: S3Client = session.client("s3", endpoint_url=endpoint, config=config)
    styled = (getattr(client.meta.config, "s3", None) or {}).get("addressing_style")
    if styled or is_aws(client.meta.endpoint_url):
        return client
    # Few servers other than AWS answer to bucket.host; those that do take host/bucket too.
    by_path = config.merge(Config(s3={"addressing_style": "path"}))
    return session.client("s3", endpoint_url=endpoint, config=by_path)


@functools.cache
def _loader() -> Loader:
    """Return what botocore knows of S3, which takes a third of a second to read: once for all clients of the process."""
    return create_loader()
