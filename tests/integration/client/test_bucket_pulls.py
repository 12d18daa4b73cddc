"""API and database down, the S3 server up: pinned pulls read the bucket with the caller's own credentials."""

from __future__ import annotations

import os
import secrets
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.client.artifacts.resolutions import ResolutionStore
from pt2hub.client.availability import Availability
from pt2hub.client.client import Client
from pt2hub.client.config import ClientConfig
from pt2hub.client.lock.declarations import Project
from pt2hub.client.lock.lock_file import read_lock, write_lock
from pt2hub.client.lock.locker import Upgrade
from pt2hub.domain.digests import Digest, digest_bytes
from pt2hub.domain.storage import StorageLocation, object_path
from pt2hub.errors import DigestMismatch, LockMismatch, NotFound, Pt2hubError, ServerUnreachable
from support.api_process import running_api
from support.artifacts import a_target
from support.mute import mute_server
from support.postgres import create_database
from support.proxy import Proxy
from support.s3 import READER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.domain.locks import Lock
    from pt2hub.server.db.embedded import EmbeddedPostgres
    from support.s3 import S3Server

HERE = a_target().name
PROD = "vision/resnet18@prod"
CODE, WEIGHTS = b"code" * 20_000, b"weights" * 30_000


@dataclass(frozen=True)
class Left:
    """What a server that is gone leaves behind."""

    url: str
    lock: Path
    digest: Digest
    location: StorageLocation
    client: Path

    @property
    def known(self) -> Lock:
        return read_lock(self.lock)


@pytest.fixture(scope="module")
def left(
    tmp_path_factory: pytest.TempPathFactory,
    postgres: EmbeddedPostgres,
    migrated_template: str,
    s3_server: S3Server,
) -> Left:
    """A server published an artifact, a client locked it; then the API's process ended."""
    folder = tmp_path_factory.mktemp("gone")
    url = create_database(postgres, template=migrated_template)
    storage = f"s3://{s3_server.bucket}/{secrets.token_hex(8)}"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3_server.environ().items():
            patch.setenv(name, value)
        with running_api(folder, url, PT2HUB_STORAGE=storage) as process:
            registry = process.registry
            registry.worker("w0", HERE)
            digest = registry.published(registry.submit(targets=[HERE]), code=CODE, weights_data=WEIGHTS)
            server = f"http://127.0.0.1:{process.port}"
            with Client(ClientConfig(home=folder / "client", url=server, token=process.token)) as client:
                client.aliases.move("vision/resnet18", "prod", 1, reason="first")
                project = Project(folder / "pt2hub.lock", None)
                client.locks.update(project, [PROD], upgrade=Upgrade())
                resolved = client.artifacts.resolve(PROD)
                client.pull(PROD)
    assert resolved.storage is not None
    return Left(server, project.lock, digest, resolved.storage, folder / "client")


@pytest.fixture
def credentials(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a caller has: keys that may read, and neither an endpoint nor a region."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    given = s3_server.environ() | {"AWS_ACCESS_KEY_ID": READER}
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_DEFAULT_REGION"):
        del given[name]
    for name, value in given.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def fresh(left: Left, tmp_path: Path) -> Iterator[Client]:
    """A machine that never pulled anything, while the server is down."""
    with Client(ClientConfig(home=tmp_path / "fresh", url=left.url)) as client:
        yield client


def refused(call: Any) -> Pt2hubError:
    with pytest.raises(Pt2hubError) as caught:
        call()
    return caught.value


def test_the_lock_says_where_the_bucket_is(left: Left, s3_server: S3Server) -> None:
    assert left.location.endpoint == s3_server.endpoint
    assert left.location.region == "us-east-1"
    assert left.known.storage == left.location


@pytest.mark.usefixtures("credentials")
def test_a_locked_artifact_is_pulled_from_the_bucket(left: Left, fresh: Client) -> None:
    begun = time.monotonic()
    pulled = fresh.pull(PROD, lock=left.lock)
    assert time.monotonic() - begun < 10
    assert pulled.manifest_digest == left.digest
    assert (pulled.code.read_bytes(), pulled.weights.read_bytes()) == (CODE, WEIGHTS)
    assert fresh.pull(PROD, lock=left.lock, offline=True) == pulled, "it is in the cache now"


@pytest.mark.usefixtures("credentials")
def test_a_server_that_never_answers_does_not_keep_a_locked_artifact_back(
    left: Left, fresh: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pt2hub.client.connection._HURRIED_S", 0.5)
    with mute_server() as url, Client(replace(fresh.config, url=url)) as client:
        begun = time.monotonic()
        assert client.pull(PROD, lock=left.lock).weights.read_bytes() == WEIGHTS
        assert time.monotonic() - begun < 5, "it is not asked again for each file"


@pytest.mark.usefixtures("credentials")
def test_a_digest_is_pulled_from_the_bucket_that_the_caller_names_or_that_was_last_known(
    left: Left, fresh: Client
) -> None:
    reference = f"vision/resnet18@{left.digest}"
    assert isinstance(refused(lambda: fresh.pull(reference)), ServerUnreachable), (
        "nobody says where the bucket is"
    )
    named = replace(fresh.config, availability=Availability(storage=left.location))
    with Client(named) as client:
        assert client.pull(reference).code.read_bytes() == CODE
    with Client(replace(fresh.config, home=left.client.parent / "second")) as client:
        ResolutionStore(client.config.cache, left.url).record(PROD, answer(left))
        with pytest.warns(UserWarning, match="as last known"):
            assert client.pull(PROD).manifest_digest == left.digest
        assert client.pull(reference).weights.read_bytes() == WEIGHTS


def answer(left: Left) -> Any:
    known = ResolutionStore(ClientConfig(home=left.client).cache, left.url).find(PROD)
    assert known is not None
    return known.resolved


def test_the_bucket_is_named_by_the_servers_own_setting(
    left: Left, s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.environ().items():
        monkeypatch.setenv(name, value)
    settings = {"PT2HUB_HOME": str(tmp_path), "PT2HUB_URL": left.url, "PT2HUB_STORAGE": left.location.url}
    with Client(ClientConfig.from_environ(settings)) as client:
        assert client.pull(f"vision/resnet18@{left.digest}").code.read_bytes() == CODE


def test_without_credentials_the_error_names_server_and_credentials(
    left: Left, fresh: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    error = refused(lambda: fresh.pull(PROD, lock=left.lock))
    assert (error.code, error.where) == ("server_unreachable", left.url)
    assert f"Its bucket {left.location.url} cannot be read either" in str(error.hint)
    assert "AWS_ACCESS_KEY_ID" in str(error.hint)


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("AWS_ACCESS_KEY_ID", "nobody", "s3:GetObject"),
        ("AWS_SECRET_ACCESS_KEY", "wrong", "s3:GetObject"),
        ("AWS_PROFILE", "absent", "AWS_PROFILE"),
    ],
)
@pytest.mark.usefixtures("credentials")
def test_wrong_credentials_are_named_and_never_shown(
    left: Left, fresh: Client, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, words: str
) -> None:
    monkeypatch.setenv(variable, value)
    error = refused(lambda: fresh.pull(PROD, lock=left.lock))
    assert error.code == "server_unreachable"
    assert words in str(error.hint)
    assert "X-Amz" not in str(error)
    assert os.environ["AWS_SECRET_ACCESS_KEY"] not in str(error) or value == "wrong"


@pytest.mark.usefixtures("credentials")
def test_without_boto3_the_error_names_the_extra(
    left: Left, fresh: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    error = refused(lambda: fresh.pull(PROD, lock=left.lock))
    assert error.code == "server_unreachable"
    assert "pip install 'pt2hub[s3]'" in str(error.hint)


@pytest.mark.usefixtures("credentials")
def test_an_s3_server_that_is_away_too_is_named(left: Left, fresh: Client, tmp_path: Path) -> None:
    path = tmp_path / "pt2hub.lock"
    nowhere = replace(left.location, endpoint="http://127.0.0.1:1")
    write_lock(path, replace(left.known, storage=nowhere))
    error = refused(lambda: fresh.pull(PROD, lock=path))
    assert (error.code, error.where) == ("server_unreachable", left.url)
    assert "http://127.0.0.1:1" in str(error.hint)


@pytest.mark.usefixtures("credentials")
def test_another_bucket_lacks_it_and_says_so(left: Left, fresh: Client, tmp_path: Path) -> None:
    path = tmp_path / "pt2hub.lock"
    for location in (
        replace(left.location, url=f"{left.location.url}/other"),
        replace(left.location, url="s3://no-such-bucket"),
    ):
        write_lock(path, replace(left.known, storage=location))
        error = refused(lambda: fresh.pull(PROD, lock=path))
        assert error.code == "server_unreachable"
        assert location.url in str(error.hint)


@pytest.mark.usefixtures("credentials")
def test_bytes_that_were_changed_in_the_bucket_are_refused(
    left: Left, fresh: Client, s3_server: S3Server, tmp_path: Path
) -> None:
    (artifact,) = left.known.models[0].artifacts
    prefix = left.location.url.removeprefix(f"s3://{s3_server.bucket}/")
    admin = s3_server.client()
    other = f"{prefix}-changed"
    for kind, digest in (
        ("manifests", artifact.manifest.digest),
        *(("blobs", item.digest) for item in list(artifact.blobs.values())[1:]),
    ):
        source = {"Bucket": s3_server.bucket, "Key": f"{prefix}/{object_path(kind, digest)}"}  # type: ignore[arg-type]
        admin.copy_object(
            Bucket=s3_server.bucket, Key=f"{other}/{object_path(kind, digest)}", CopySource=source
        )  # type: ignore[arg-type]
    path = tmp_path / "pt2hub.lock"
    write_lock(
        path, replace(left.known, storage=replace(left.location, url=f"s3://{s3_server.bucket}/{other}"))
    )
    key = f"{other}/{object_path('blobs', artifact.weights.digest)}"
    admin.put_object(Bucket=s3_server.bucket, Key=key, Body=WEIGHTS[:-1] + b"x")
    with pytest.raises(DigestMismatch):
        fresh.pull(PROD, lock=path)
    # Bytes that were stored again after a deletion have another path.
    admin.put_object(Bucket=s3_server.bucket, Key=f"{key}.2", Body=WEIGHTS)
    admin.delete_object(Bucket=s3_server.bucket, Key=key)
    assert fresh.pull(PROD, lock=path).weights.read_bytes() == WEIGHTS
    manifest = f"{other}/{object_path('manifests', artifact.manifest.digest)}"
    admin.put_object(Bucket=s3_server.bucket, Key=manifest, Body=b"{}")
    with (
        Client(replace(fresh.config, home=tmp_path / "third")) as client,
        pytest.raises(DigestMismatch) as caught,
    ):
        client.pull(PROD, lock=path)
    assert caught.value.where == artifact.manifest.digest


@pytest.mark.usefixtures("credentials")
def test_a_broken_connection_to_the_bucket_is_resumed(left: Left, fresh: Client, tmp_path: Path) -> None:
    with Proxy(str(left.location.endpoint)) as proxy:
        path = tmp_path / "pt2hub.lock"
        write_lock(path, replace(left.known, storage=replace(left.location, endpoint=proxy.url)))
        (artifact,) = left.known.models[0].artifacts
        proxy.fault(
            "truncate", digest_bytes(WEIGHTS).removeprefix("sha256:"), times=2, after=100_000, down=True
        )
        proxy.fault("answer", digest_bytes(CODE).removeprefix("sha256:"), times=1, status=503)
        pulled = fresh.pull(PROD, lock=path)
        assert pulled.weights.read_bytes() == WEIGHTS
        assert artifact.code.digest == digest_bytes(pulled.code.read_bytes())
        assert proxy.asked(digest_bytes(WEIGHTS).removeprefix("sha256:")) == 3


@pytest.mark.usefixtures("credentials")
def test_an_edited_lock_is_refused_from_the_bucket_too(left: Left, fresh: Client, tmp_path: Path) -> None:
    path = tmp_path / "pt2hub.lock"
    text = left.lock.read_text()
    path.write_text(text.replace(f"size = {len(WEIGHTS)}", f"size = {len(WEIGHTS) + 1}"))
    with pytest.raises(LockMismatch, match=r"weights\.size"):
        fresh.pull(PROD, lock=path)
    path.write_text(text.replace(left.digest, digest_bytes(b"other")))
    error = refused(lambda: fresh.pull(PROD, lock=path))
    assert error.code == "server_unreachable"
    assert "no such object" in str(error.hint)
    assert not isinstance(error, NotFound)
