"""A real worker under the least credentials: the role of the database, and the policy of the bucket."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from pt2hub.domain.builds import BuildFilter, BuildKind
from pt2hub.server.blobs.s3.worker_policy import worker_policy
from pt2hub.server.config import ServerConfig
from pt2hub.server.container import open_container
from support.plane import TARGET
from support.s3 import WORKER, WORKER_ARN
from support.working import Works, environ_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from types_boto3_s3 import S3Client

    from support.s3 import S3Server


@pytest.fixture
def works(
    tmp_path: Path, migrated_url: str, s3_server: S3Server, s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Works]:
    """Services over a folder of the bucket, whose policy lets workers do what the command prints."""
    policy = worker_policy(s3_url, WORKER_ARN)
    s3_server.client().put_bucket_policy(Bucket=s3_server.bucket, Policy=json.dumps(policy))
    for name, value in s3_server.environ().items():
        monkeypatch.setenv(name, value)
    environ = environ_of(tmp_path, migrated_url) | {"PT2HUB_STORAGE": s3_url}
    config = ServerConfig.from_environ(environ)
    with open_container(config, database_url=migrated_url) as container:
        container.health.check_storage()
        made = Works(container, environ | s3_server.environ() | {"AWS_ACCESS_KEY_ID": WORKER}, tmp_path)
        try:
            yield made
        finally:
            made.end()
            s3_server.client().delete_bucket_policy(Bucket=s3_server.bucket)


def test_a_worker_builds_publishes_and_measures_with_its_own_credentials(works: Works) -> None:
    worker = works.noop()
    for seed in (1, 2):
        build = works.publish(seed, targets=[TARGET])
        view = works.await_state(build, "succeeded", "failed")
        assert view.state == "succeeded", (view.error, worker.output)
        assert view.artifact is not None
    assert [item.number for item in works.services.catalog.versions("tiny/mlp").versions] == [2, 1]
    jobs = works.services.catalog.builds(BuildFilter(model="tiny/mlp", kind=BuildKind.MEASURE)).builds
    assert [works.await_state(job.id, "succeeded", "failed").state for job in jobs] == ["succeeded"] * 2
    worker.signal()
    assert worker.wait() == 0


@pytest.mark.usefixtures("works")
def test_an_upload_in_parts_is_within_the_policy(s3_server: S3Server, s3_url: str) -> None:
    client, (bucket, prefix) = s3_server.client(WORKER), _place(s3_url)
    named: Any = {"Bucket": bucket, "Key": f"{prefix}/blobs/sha256/aa/parts"}
    for _ in range(2):
        upload = client.create_multipart_upload(**named)["UploadId"]
        client.upload_part(**named, UploadId=upload, PartNumber=1, Body=b"part")
        client.abort_multipart_upload(**named, UploadId=upload)


@pytest.mark.usefixtures("works")
@pytest.mark.parametrize(
    "forbidden",
    [
        lambda s3, place: s3.delete_object(Bucket=place[0], Key=f"{place[1]}/blobs/sha256/aa/theirs"),
        lambda s3, place: s3.get_object(Bucket=place[0], Key=f"{place[1]}/incoming/theirs"),
        lambda s3, place: s3.put_object(Bucket=place[0], Key=f"{place[1]}/incoming/mine", Body=b""),
        lambda s3, place: s3.put_object(Bucket=place[0], Key=f"{place[1]}/journal/mine", Body=b""),
        lambda s3, place: s3.put_object(Bucket=place[0], Key="elsewhere/mine", Body=b""),
        lambda s3, place: s3.get_object(Bucket=place[0], Key="ready"),
        lambda s3, place: s3.list_multipart_uploads(Bucket=place[0]),
        lambda s3, place: s3.put_bucket_policy(Bucket=place[0], Policy="{}"),
    ],
    ids=[
        "delete",
        "read uploads",
        "write uploads",
        "write the journal",
        "write elsewhere",
        "read elsewhere",
        "list uploads",
        "policy",
    ],
)
def test_the_bucket_refuses_a_worker_what_it_needs_not(
    s3_server: S3Server, s3_url: str, forbidden: Callable[[S3Client, tuple[str, str]], object]
) -> None:
    admin, place = s3_server.client(), _place(s3_url)
    for path in ("blobs/sha256/aa/theirs", "incoming/theirs"):
        admin.put_object(Bucket=place[0], Key=f"{place[1]}/{path}", Body=b"theirs")

    with pytest.raises(ClientError) as refused:
        forbidden(s3_server.client(WORKER), place)

    assert refused.value.response["Error"]["Code"] == "AccessDenied"


def test_conditions_forbid_overwriting_where_the_server_knows_them() -> None:
    policy = worker_policy("s3://models/pt2hub", overwriting=False)
    conditions = {each["Sid"]: each.get("Condition") for each in policy["Statement"]}

    assert conditions["Create"] == {"Null": {"s3:if-none-match": "false"}}
    assert conditions["CreateParts"] == {"Bool": {"s3:ObjectCreationOperation": "false"}}


def _place(url: str) -> tuple[str, str]:
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    return bucket, prefix
