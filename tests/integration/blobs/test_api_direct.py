"""Bytes that go between a client and the storage, by requests that the API signs; a real S3 server, a real API."""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest
import urllib3

from pt2hub.domain.digests import digest_bytes
from pt2hub.server.up.port import listen
from pt2hub.system.processes import spawn
from support.api_process import ApiProcess, running_api
from support.postgres import create_database
from support.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pt2hub.server.db.embedded import EmbeddedPostgres
    from support.s3 import S3Server

DATA = bytes(range(256)) * 16
DIGEST = digest_bytes(DATA)
BLOB = f"/api/v1/blobs/{DIGEST}"
UPLOADS = "/api/v1/uploads"


class Api:
    """A running API over the S3 server."""

    def __init__(self, process: ApiProcess) -> None:
        self.process = process
        self._pool = urllib3.PoolManager(retries=False)

    def ask(self, method: str, path: str, *, token: bool = True, **options: Any) -> urllib3.BaseHTTPResponse:
        """An answer of the API, as it is."""
        headers = {"Authorization": f"Bearer {self.process.token}"} if token else {}
        headers |= options.pop("headers", {})
        url = f"http://127.0.0.1:{self.process.port}{path}"
        return self._pool.request(method, url, headers=headers, redirect=False, **options)

    def send(self, request: dict[str, Any], data: bytes) -> urllib3.BaseHTTPResponse:
        """Does what the API signed."""
        return self._pool.request(request["method"], request["url"], body=data, headers=request["headers"])

    def fetch(self, url: str, **headers: str) -> urllib3.BaseHTTPResponse:
        """What lies at a signed address."""
        return self._pool.request("GET", url, headers=headers)

    def uploaded(self, data: bytes) -> dict[str, Any]:
        """Uploads bytes by one signed request; the view at the end."""
        begun = self.ask("POST", UPLOADS, json={"digest": digest_bytes(data), "size": len(data)})
        assert begun.status == 201, begun.data
        assert self.send(begun.json()["request"], data).status == 200
        ended = self.ask("POST", f"{UPLOADS}/{begun.json()['id']}/complete", json={"etags": []})
        assert ended.status == 200, ended.data
        view: dict[str, Any] = ended.json()
        return view


@pytest.fixture(scope="module")
def api(
    tmp_path_factory: pytest.TempPathFactory,
    postgres: EmbeddedPostgres,
    migrated_template: str,
    s3_server: S3Server,
) -> Iterator[Api]:
    """One API for the tests of this file, which logs everything."""
    folder = tmp_path_factory.mktemp("api")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3_server.environ().items():
            patch.setenv(name, value)
        url = create_database(postgres, template=migrated_template)
        storage = f"s3://{s3_server.bucket}/{folder.name}"
        settings = {
            "PT2HUB_STORAGE": storage,
            "PT2HUB_LOG_LEVEL": "debug",
            "PT2HUB_MAX_BLOB_BYTES": "1000000",
        }
        with running_api(folder, url, **settings) as process:
            yield Api(process)


def test_bytes_go_to_the_storage_itself_and_come_from_it(api: Api) -> None:
    view = api.uploaded(DATA)
    assert (view["state"], view["digest"], view["size"]) == ("stored", DIGEST, len(DATA))
    sent_on = api.ask("GET", BLOB, token=False)
    assert (sent_on.status, sent_on.data) == (307, b"")
    assert sent_on.headers["Cache-Control"] == "no-store"
    there = sent_on.headers["Location"]
    assert not there.startswith(f"http://127.0.0.1:{api.process.port}")
    whole, part = api.fetch(there), api.fetch(there, Range="bytes=10-19")
    assert (whole.status, whole.data) == (200, DATA)
    assert (part.status, part.data) == (206, DATA[10:20])


def test_what_is_there_already_needs_no_upload(api: Api) -> None:
    data = b"known"
    api.uploaded(data)
    again = api.ask("POST", UPLOADS, json={"digest": digest_bytes(data), "size": len(data)})
    assert (again.status, again.json()["state"], again.json()["request"]) == (200, "stored", None)


def test_other_bytes_than_were_announced_are_refused_by_the_storage(api: Api) -> None:
    begun = api.ask("POST", UPLOADS, json={"digest": digest_bytes(b"right"), "size": 5}).json()
    assert api.send(begun["request"], b"wrong").status >= 400
    ended = api.ask("POST", f"{UPLOADS}/{begun['id']}/complete", json={"etags": []})
    assert (ended.status, ended.json()["code"]) == (409, "upload_incomplete")
    assert api.send(begun["request"], b"right").status == 200
    assert (
        api.ask("POST", f"{UPLOADS}/{begun['id']}/complete", json={"etags": []}).json()["state"] == "stored"
    )


def test_head_conditions_and_unknown_blobs_are_answered_by_the_api(api: Api) -> None:
    api.uploaded(b"headed")
    path, tag = f"/api/v1/blobs/{digest_bytes(b'headed')}", f'"{digest_bytes(b"headed")}"'
    head = api.ask("HEAD", path, token=False)
    assert (head.status, head.headers["Content-Length"], head.headers["ETag"]) == (200, "6", tag)
    assert "immutable" in head.headers["Cache-Control"]
    assert api.ask("GET", path, headers={"If-None-Match": tag}).status == 304
    assert api.ask("GET", path, headers={"If-Match": '"other"'}).status == 412
    assert api.ask("GET", path, headers={"If-None-Match": '"other"'}).status == 307
    unknown = api.ask("GET", f"/api/v1/blobs/{digest_bytes(b'unknown')}", token=False)
    assert (unknown.status, unknown.json()["where"]) == (404, digest_bytes(b"unknown"))


def test_who_cannot_follow_may_still_send_bytes_through_the_api(api: Api) -> None:
    data = b"through the API"
    assert api.ask("PUT", f"/api/v1/blobs/{digest_bytes(data)}", body=data).status == 201
    there = api.ask("GET", f"/api/v1/blobs/{digest_bytes(data)}").headers["Location"]
    assert api.fetch(there).data == data


def test_no_signed_address_stands_in_any_log(api: Api) -> None:
    begun = api.ask("POST", UPLOADS, json={"digest": digest_bytes(b"secret"), "size": 6}).json()
    api.send(begun["request"], b"secret")
    view = api.ask("GET", f"{UPLOADS}/{begun['id']}")
    assert view.headers["Cache-Control"] == "no-store"
    api.ask("POST", f"{UPLOADS}/{begun['id']}/complete", json={"etags": []})
    there = api.ask("GET", f"/api/v1/blobs/{digest_bytes(b'secret')}").headers["Location"]
    log = api.process.log
    asked = [json.loads(line).get("path") for line in log.splitlines()]
    assert {UPLOADS, f"/api/v1/blobs/{digest_bytes(b'secret')}"} <= set(asked), "both requests are logged"
    for url in (begun["request"]["url"], there):
        (signature,) = parse_qs(urlsplit(url).query)["X-Amz-Signature"]
        assert signature not in log
    assert "X-Amz-" not in log


def test_clients_are_sent_where_they_reach_the_storage(
    tmp_path: Path, migrated_url: str, s3_url: str, s3_server: S3Server
) -> None:
    public = s3_server.endpoint.replace("127.0.0.1", "localhost")
    settings = {"PT2HUB_STORAGE": s3_url, "PT2HUB_S3_PUBLIC_ENDPOINT_URL": public}
    with running_api(tmp_path, migrated_url, **settings) as process:
        api = Api(process)
        begun = api.ask("POST", UPLOADS, json={"digest": DIGEST, "size": len(DATA)}).json()
        assert begun["request"]["url"].startswith(f"{public}/")
        assert api.send(begun["request"], DATA).status == 200
        assert api.ask("POST", f"{UPLOADS}/{begun['id']}/complete", json={"etags": []}).status == 200
        there = api.ask("GET", BLOB).headers["Location"]
        assert there.startswith(f"{public}/")
        assert api.fetch(there).data == DATA


def test_an_upload_that_is_given_up_is_gone(api: Api) -> None:
    begun = api.ask("POST", UPLOADS, json={"digest": digest_bytes(b"given up"), "size": 8}).json()
    path = f"{UPLOADS}/{begun['id']}"
    assert api.ask("GET", path).json()["state"] == "open"
    gone = api.ask("DELETE", path)
    assert (gone.status, gone.data) == (204, b"")
    assert (api.ask("GET", path).status, api.ask("GET", path).json()["code"]) == (404, "not_found")


def test_only_who_may_upload_sees_where_an_upload_goes(api: Api) -> None:
    begun = api.ask("POST", UPLOADS, json={"digest": digest_bytes(b"mine"), "size": 4}).json()
    for method, path in (
        ("GET", f"{UPLOADS}/{begun['id']}"),
        ("DELETE", f"{UPLOADS}/{begun['id']}"),
        ("POST", f"{UPLOADS}/{begun['id']}/complete"),
    ):
        assert api.ask(method, path, token=False).status == 401, method
    assert api.ask("GET", f"{UPLOADS}/{begun['id']}").json()["state"] == "open"


MD5 = "1B2M2Y8AsgTpgAmY7PhCfg=="


@pytest.mark.parametrize(
    ("path", "body", "place"),
    [
        ("", {"digest": "sha256:abc", "size": 1}, "digest"),
        ("", {"digest": DIGEST, "size": -1}, "size"),
        ("", {"digest": DIGEST, "size": 1.5}, "size"),
        ("", {"digest": DIGEST, "size": 1 << 60}, "size"),
        ("", {"digest": DIGEST}, "size"),
        ("", {"digest": DIGEST, "size": 1, "name": "x"}, "name"),
        ("/u1/parts", {"parts": []}, "parts"),
        ("/u1/parts", {"parts": [{"number": 0, "md5": MD5}]}, "parts.0.number"),
        ("/u1/parts", {"parts": [{"number": 10001, "md5": MD5}]}, "parts.0.number"),
        ("/u1/parts", {"parts": [{"number": 1, "md5": MD5[:-1]}]}, "parts.0.md5"),
        ("/u1/parts", {"parts": [{"number": 1, "md5": "x" * 24}]}, "parts.0.md5"),
        ("/u1/parts", {"parts": [{"number": 1, "md5": MD5}] * 101}, "parts"),
        ("/u1/complete", {"etags": ["a"] * 10001}, "etags"),
        ("/u1/complete", {"etags": ["two words"]}, "etags.0"),
        ("/u1/complete", {"etags": ["x" * 101]}, "etags.0"),
        ("/u1/complete", {"etags": [""] * 10000}, "etags.0"),
    ],
)
def test_a_wrong_document_is_told_by_place(api: Api, path: str, body: dict[str, Any], place: str) -> None:
    answer = api.ask("POST", f"{UPLOADS}{path}", json=body)
    document = answer.json()
    assert (answer.status, document["code"]) == (422, "invalid_input")
    assert document["details"][0]["path"] == place
    assert document["hint"].startswith('Send {"')
    assert len(document["details"]) <= 20


def test_what_is_too_large_is_refused_before_it_is_sent(api: Api) -> None:
    answer = api.ask("POST", UPLOADS, json={"digest": DIGEST, "size": 1_000_001})
    assert (answer.status, answer.json()["code"]) == (413, "too_large")
    assert "PT2HUB_MAX_BLOB_BYTES" in answer.json()["hint"]
    long = api.ask("POST", UPLOADS, body=b" " * 20_000)
    assert (long.status, long.json()["code"]) == (413, "too_large")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/u1", None),
        ("DELETE", "/u1", None),
        ("POST", "/u1/parts", {"parts": [{"number": 1, "md5": MD5}]}),
        ("POST", "/u1/complete", {}),
    ],
)
def test_an_upload_nobody_began_is_not_found(api: Api, method: str, path: str, body: object) -> None:
    answer = api.ask(method, f"{UPLOADS}{path}", **({} if body is None else {"json": body}))
    assert (answer.status, answer.json()["code"]) == (404, "not_found")


def test_a_storage_that_is_away_when_a_process_starts_is_tried_out_later(
    tmp_path: Path, migrated_url: str, monkeypatch: pytest.MonkeyPatch, s3_url: str, s3_server: S3Server
) -> None:
    with Proxy(s3_server.endpoint) as proxy, ExitStack() as stack:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.url)
        with proxy.refusing():
            process = stack.enter_context(running_api(tmp_path, migrated_url, PT2HUB_STORAGE=s3_url))
            assert process.ask("GET", "/healthz")[0].status == 200
            answer, body = process.ask("GET", "/readyz")
            assert (answer.status, json.loads(body)["code"]) == (503, "storage_unavailable")
            assert "the storage has not been checked yet" in process.log
        assert process.ask("GET", "/readyz")[0].status == 200
        stack.close()


def test_a_process_ends_with_a_sentence_where_the_bucket_is_not_there(
    tmp_path: Path, migrated_url: str, s3_url: str
) -> None:
    settings = {
        "PT2HUB_HOME": str(tmp_path),
        "PT2HUB_STORAGE": s3_url.replace("artifacts", "absent"),
        "PT2HUB_DATABASE_URL": migrated_url,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    with listen("127.0.0.1", 0) as listener:
        argv = [sys.executable, "-m", "pt2hub.server.serve", "--fd", str(listener.fileno())]
        log = tmp_path / "api.log"
        child = spawn(argv, log=log, environ=os.environ | settings, keep_open=[listener.fileno()])
        try:
            assert child.wait(30) not in (0, None)
        finally:
            child.stop()
    said = log.read_text()
    assert "s3://absent" in said
    assert "[bad_configuration]" in said
    assert "Traceback" not in said
