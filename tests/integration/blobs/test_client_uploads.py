"""The client's way to a storage, against a scripted server and a scripted storage: what is sent where, what is tried again."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.client.blobs.upload import Parts
from pt2hub.client.client import Client
from pt2hub.client.config import ClientConfig
from pt2hub.client.http.presigned import PresignedClient
from pt2hub.client.http.ranges import ByteRange
from pt2hub.client.http.transfers import Slice, Source
from pt2hub.client.http.transport import Transport
from pt2hub.domain.digests import CHUNK, digest_bytes
from pt2hub.errors import (
    BadResponse,
    Conflict,
    DigestMismatch,
    NotFound,
    Pt2hubError,
    StorageFull,
    StorageUnavailable,
    TooLarge,
    UploadIncomplete,
)
from pt2hub.wire.uploads import UploadRequest, UploadView
from support.blob_sources import downloaded
from support.proxy import CONFLICT, SLOW_DOWN
from support.stub import Answer, Stub, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROBLEM = "application/problem+json"
SECRET = "X-Amz-Signature=5ecret"
DATA = bytes(range(256)) * 8
LARGE = DATA * (3 * CHUNK // len(DATA))
DIGEST = digest_bytes(DATA)
BUSY, RACE = Answer(503, SLOW_DOWN, "application/xml"), Answer(409, CONFLICT, "application/xml")
TAKEN = Answer(200, b"", headers={"ETag": '"etag"'})


@pytest.fixture
def storage() -> Iterator[Stub]:
    """What stands for S3."""
    with serving(Stub()) as server:
        server.script = [TAKEN]
        yield server


@pytest.fixture
def client(stub: Stub, tmp_path: Path) -> Iterator[Client]:
    with Client(ClientConfig(home=tmp_path / "home", url=stub.url, token="pt2_secret")) as made:
        yield made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "weights"
    path.write_bytes(DATA)
    return path


def view(state: str, **fields: Any) -> Answer:
    document = {"digest": DIGEST, "size": len(DATA), "state": state, "id": "u1"} | fields
    return Answer(201, json.dumps(document).encode())


def request_to(storage: Stub, path: str = "/bucket/key") -> dict[str, Any]:
    headers = {"If-None-Match": "*", "content-length": str(len(DATA))}
    return {"method": "PUT", "url": f"{storage.url}{path}?{SECRET}", "headers": headers}


def whole(storage: Stub) -> Answer:
    return view("open", request=request_to(storage))


def asked(stub: Stub) -> list[str]:
    return [request.rpartition(" ")[0].replace("/api/v1/uploads", "") for request, _, _ in stub.asked]


GONE = Answer(204, b"")
BEGUN, ENDED, CANCELLED = "POST ", "POST /u1/complete", "DELETE /u1"


# -- uploads ---------------------------------------------------------------------------------------------


def test_bytes_that_are_there_are_not_sent(client: Client, stub: Stub, file: Path) -> None:
    stub.script = [view("stored", id=None)]
    assert client.blobs.upload(file) == DIGEST
    assert json.loads(stub.asked[0][2]) == {"digest": DIGEST, "size": len(DATA)}
    assert asked(stub) == [BEGUN]


def test_a_server_without_such_a_storage_takes_the_bytes_itself(
    client: Client, stub: Stub, file: Path
) -> None:
    own = {"method": "PUT", "url": f"/api/v1/blobs/{DIGEST}", "headers": {}}
    stub.script = [view("open", id=None, request=own), Answer(201)]
    assert client.blobs.upload(file) == DIGEST
    assert asked(stub) == [BEGUN, f"PUT /api/v1/blobs/{DIGEST}"]
    assert (stub.asked[1][2], stub.asked[1][1]["Authorization"]) == (DATA, "Bearer pt2_secret")


def test_the_storage_gets_the_bytes_and_the_signed_headers_but_no_token(
    client: Client, stub: Stub, storage: Stub, file: Path
) -> None:
    stub.script = [whole(storage), view("stored")]
    assert client.blobs.upload(file) == DIGEST
    assert asked(stub) == [BEGUN, ENDED]
    assert json.loads(stub.asked[1][2]) == {"etags": []}
    ((line, headers, body),) = storage.asked
    assert (line, body) == (f"PUT /bucket/key?{SECRET} HTTP/1.1", DATA)
    assert headers["If-None-Match"] == "*"
    assert "Authorization" not in headers
    assert [name.lower() for name in headers].count("content-length") == 1


def test_an_empty_file_is_sent_too(client: Client, stub: Stub, storage: Stub, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    stub.script = [view("open", request=request_to(storage) | {"headers": {}}), view("stored")]
    assert client.blobs.upload(tmp_path / "empty") == digest_bytes(b"")
    assert storage.asked[0][1]["Content-Length"] == "0"


@pytest.mark.parametrize(
    "refusals",
    [
        [BUSY, BUSY],
        [RACE],
        [Answer(400, b"<Error><Code>BadDigest</Code></Error>")],
    ],
    ids=["SlowDown", "conflict", "other bytes"],
)
def test_what_passes_at_the_storage_is_tried_again_with_the_whole_body(
    client: Client, stub: Stub, storage: Stub, file: Path, refusals: list[Answer]
) -> None:
    stub.script = [whole(storage), view("stored")]
    storage.script = [*refusals, TAKEN]
    assert client.blobs.upload(file) == DIGEST
    assert [body for _, _, body in storage.asked] == [DATA] * (len(refusals) + 1)


def test_an_object_that_exists_is_left_to_the_server_to_compare(
    client: Client, stub: Stub, storage: Stub, file: Path
) -> None:
    stub.script = [whole(storage), view("stored")]
    storage.script = [Answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")]
    assert client.blobs.upload(file) == DIGEST
    assert (asked(stub), len(storage.asked)) == ([BEGUN, ENDED], 1)


def test_a_signature_whose_time_is_over_is_asked_for_anew(
    client: Client, stub: Stub, storage: Stub, file: Path
) -> None:
    again = view("open", request=request_to(storage, "/bucket/again"))
    stub.script = [whole(storage), again, view("stored")]
    storage.script = [Answer(403, b"<Error><Code>AccessDenied</Code></Error>"), TAKEN]
    assert client.blobs.upload(file) == DIGEST
    assert asked(stub) == [BEGUN, "GET /u1", ENDED]
    assert storage.asked[1][0].startswith("PUT /bucket/again?")


def test_bytes_that_somebody_else_stored_meanwhile_are_sent_no_more(
    client: Client, stub: Stub, storage: Stub, file: Path
) -> None:
    stub.script = [whole(storage), view("stored")]
    storage.script = [Answer(403, b"<Error><Code>AccessDenied</Code></Error>")]
    assert client.blobs.upload(file) == DIGEST
    assert (asked(stub), len(storage.asked)) == ([BEGUN, "GET /u1", ENDED], 1)


@pytest.mark.parametrize(
    ("status", "refusal"),
    [
        ((404, "NoSuchUpload"), StorageUnavailable),
        ((507, "StorageFull"), StorageFull),
        ((403, "QuotaExceeded"), StorageFull),
    ],
)
def test_what_does_not_pass_ends_the_upload_which_is_cancelled(
    client: Client, stub: Stub, storage: Stub, file: Path, status: tuple[int, str], refusal: type[Pt2hubError]
) -> None:
    number, code = status
    stub.script = [whole(storage), GONE]
    storage.script = [Answer(number, f"<Error><Code>{code}</Code></Error>".encode())]
    with pytest.raises(
        refusal, match=f"The storage, not pt2hub's server, answered HTTP {number} {code}"
    ) as caught:
        client.blobs.upload(file)
    assert f"{storage.url}/bucket/key" in str(caught.value)
    assert "5ecret" not in repr(caught.value.as_dict())
    assert (asked(stub), len(storage.asked)) == ([BEGUN, CANCELLED], 1)


@pytest.mark.usefixtures("hasty")
def test_a_storm_that_lasts_is_an_error_in_the_end(
    client: Client, stub: Stub, storage: Stub, file: Path
) -> None:
    stub.script = [whole(storage), GONE]
    storage.script = [BUSY]
    with pytest.raises(StorageUnavailable, match="HTTP 503 SlowDown"):
        client.blobs.upload(file)
    assert len(storage.asked) == 6
    assert asked(stub) == [BEGUN, CANCELLED]


def test_the_servers_check_is_waited_for_and_its_refusal_is_ours(
    client: Client, stub: Stub, storage: Stub, file: Path
) -> None:
    checking = view("checking", checked_bytes=7)
    stub.script = [whole(storage), checking, checking, view("stored", checked_bytes=len(DATA))]
    assert client.blobs.upload(file) == DIGEST
    assert asked(stub) == [BEGUN, ENDED, "GET /u1", "GET /u1"]
    error = DigestMismatch("The bytes have another digest.", hint="Again.").as_dict()
    stub.script = [whole(storage), checking, view("failed", error=error), GONE]
    with pytest.raises(DigestMismatch, match="another digest") as caught:
        client.blobs.upload(file)
    assert caught.value.hint == "Again."


def test_a_server_that_is_away_for_a_moment_is_asked_again(
    client: Client, stub: Stub, storage: Stub, file: Path
) -> None:
    body = StorageUnavailable("away").as_dict() | {"detail": "away"}
    away = Answer(503, json.dumps(body).encode(), PROBLEM)
    stub.script = [away, whole(storage), away, view("stored")]
    assert client.blobs.upload(file) == DIGEST
    assert asked(stub) == [BEGUN, BEGUN, ENDED, ENDED]


def test_a_refusal_of_the_server_is_not_tried_again(client: Client, stub: Stub, file: Path) -> None:
    body = TooLarge("too large").as_dict() | {"detail": "too large"}
    stub.script = [Answer(413, json.dumps(body).encode(), PROBLEM)]
    with pytest.raises(TooLarge):
        client.blobs.upload(file)
    assert asked(stub) == [BEGUN]


def test_a_state_of_a_newer_server_is_named(client: Client, stub: Stub, file: Path) -> None:
    stub.script = [view("quarantined"), GONE]
    with pytest.raises(BadResponse, match="Unknown upload state 'quarantined'"):
        client.blobs.upload(file)


# -- in parts --------------------------------------------------------------------------------------------


PARTS = 7
PART_BYTES = -(-len(DATA) // PARTS)


def in_parts(storage: Stub, *end: Answer) -> list[Answer]:
    """Beginning, one signature per part, and the end."""
    part = {"parts": [{"number": 1, "request": request_to(storage) | {"headers": {}}}]}
    signed = Answer(200, json.dumps(part).encode())
    return [view("open", part_bytes=PART_BYTES), *[signed] * PARTS, *end]


def test_parts_cover_the_file_each_with_its_md5(
    client: Client, stub: Stub, storage: Stub, file: Path
) -> None:
    stub.script = in_parts(storage, view("stored"))
    assert client.blobs.upload(file) == DIGEST
    wanted = [DATA[at : at + PART_BYTES] for at in range(0, len(DATA), PART_BYTES)]
    assert sorted(body for _, _, body in storage.asked) == sorted(wanted)
    parts = [part for _, _, body in stub.asked[1:-1] for part in json.loads(body)["parts"]]
    sums = [base64.b64encode(hashlib.md5(part).digest()).decode() for part in wanted]
    assert sorted(parts, key=lambda part: part["number"]) == [
        {"number": number, "md5": md5} for number, md5 in enumerate(sums, 1)
    ]
    assert json.loads(stub.asked[-1][2]) == {"etags": ['"etag"'] * PARTS}


def test_what_is_shown_is_the_sum_over_the_parts(stub: Stub, storage: Stub, file: Path) -> None:
    stub.script = in_parts(storage)[1:]
    storage.script = [BUSY, TAKEN]  # what is sent again counts once
    source = Source.of(file, progress=False)
    seen: list[int] = []
    open_view = UploadView(DIGEST, len(DATA), "open", id="u1", part_bytes=PART_BYTES)
    transport = Transport(stub.url)
    assert Parts(transport, source, open_view, seen.append).send() == ['"etag"'] * PARTS
    transport.close()
    assert (max(seen), seen[-1]) == (len(DATA), len(DATA))


def test_one_part_that_fails_ends_all_and_the_upload_is_cancelled(
    client: Client, stub: Stub, storage: Stub, file: Path
) -> None:
    stub.script = in_parts(storage, GONE)
    storage.script = [TAKEN, Answer(404, b"<Error><Code>NoSuchUpload</Code></Error>")]
    before = set(threading.enumerate())
    with pytest.raises(StorageUnavailable, match="NoSuchUpload"):
        client.blobs.upload(file)
    assert asked(stub)[-1] == CANCELLED
    assert not [thread for thread in set(threading.enumerate()) - before if "work" in thread.name]


def test_parts_that_the_server_misses_are_its_error(
    client: Client, stub: Stub, storage: Stub, file: Path
) -> None:
    body = UploadIncomplete("Part 3 is missing.").as_dict() | {"detail": "Part 3 is missing."}
    stub.script = in_parts(storage, Answer(409, json.dumps(body).encode(), PROBLEM), GONE)
    with pytest.raises(UploadIncomplete, match="Part 3"):
        client.blobs.upload(file)


# -- a file that changes ---------------------------------------------------------------------------------


class Writes(Stub):
    """A storage that another program uses the time of to write to the file."""

    path: Path

    def finish_request(self, request: Any, client_address: Any) -> None:
        self.path.write_bytes(DATA[::-1])
        super().finish_request(request, client_address)


@pytest.mark.parametrize("refusals", [[], [Answer(400, b"<Error><Code>BadDigest</Code></Error>")]])
def test_a_file_that_changes_while_it_is_sent_is_said_to_have_changed(
    client: Client, stub: Stub, file: Path, refusals: list[Answer]
) -> None:
    with Writes() as storage:
        storage.path = file
        storage.script = [*refusals, TAKEN]
        thread = threading.Thread(target=storage.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        stub.script = [whole(storage), GONE]
        with pytest.raises(Conflict, match="The file changed during the upload") as caught:
            client.blobs.upload(file)
        storage.shutdown()
        thread.join()
    assert caught.value.where == str(file)
    assert asked(stub) == [BEGUN, CANCELLED]


# -- downloads -------------------------------------------------------------------------------------------


def moved(storage: Stub, status: int = 307) -> Answer:
    return Answer(status, b"", headers={"Location": f"{storage.url}/bucket/blob?{SECRET}"})


@pytest.fixture
def transport(stub: Stub) -> Iterator[Transport]:
    made = Transport(stub.url, token="pt2_secret")
    yield made
    made.close()


def test_a_blob_is_read_where_the_server_sends_to_without_the_token(
    stub: Stub, storage: Stub, transport: Transport
) -> None:
    stub.script, storage.script = [moved(storage)], [Answer(body=LARGE)]
    assert downloaded(transport, "/x", len(LARGE)) == LARGE
    assert stub.asked[0][1]["Authorization"] == "Bearer pt2_secret"
    line, headers, _ = storage.asked[0]
    assert line == f"GET /bucket/blob?{SECRET} HTTP/1.1"
    assert "Authorization" not in headers


def test_a_download_that_breaks_is_gone_on_with_at_an_address_asked_for_anew(
    stub: Stub, storage: Stub, transport: Transport
) -> None:
    came = CHUNK + 1000
    rest = {"Content-Range": f"bytes {came}-{len(LARGE) - 1}/{len(LARGE)}"}
    stub.script = [moved(storage)]
    storage.script = [
        Answer(body=LARGE, cut=came),
        Answer(403, b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>"),
        BUSY,
        Answer(206, LARGE[came:], headers=rest),
    ]
    assert downloaded(transport, "/x", len(LARGE)) == LARGE
    assert len(stub.asked) == 2, "one address serves until its signature expires"
    assert storage.asked[3][1]["Range"] == f"bytes={came}-"


@pytest.mark.usefixtures("hasty")
def test_a_storage_that_stays_busy_is_named_and_its_address_stays_secret(
    stub: Stub, storage: Stub, transport: Transport
) -> None:
    stub.script, storage.script = [moved(storage)], [BUSY]
    with pytest.raises(StorageUnavailable, match=f"0 of {len(DATA)} bytes.*HTTP 503 SlowDown") as caught:
        downloaded(transport, "/x", len(DATA))
    assert caught.value.where == f"{storage.url}/bucket/blob"
    assert "5ecret" not in repr(caught.value.as_dict())


def test_a_storage_sends_nowhere_else(storage: Stub) -> None:
    storage.script = [moved(storage), Answer(body=DATA)]
    with pytest.raises(StorageUnavailable, match="HTTP 307"):
        read(f"{storage.url}/bucket?{SECRET}")
    assert len(storage.asked) == 1


def test_a_storage_with_another_length_is_refused(stub: Stub, storage: Stub, transport: Transport) -> None:
    stub.script, storage.script = [moved(storage)], [Answer(body=DATA)]
    with pytest.raises(BadResponse, match=f"{len(DATA)} bytes .*, expected {len(LARGE)}") as caught:
        downloaded(transport, "/x", len(LARGE))
    assert "5ecret" not in str(caught.value)


def test_a_server_that_moved_is_followed_as_before(stub: Stub, storage: Stub, transport: Transport) -> None:
    stub.script = [
        Answer(302, b"", headers={"Location": "/y"}),
        Answer(302, b"", headers={"Location": "/y"}),
        Answer(body=DATA),
    ]
    assert downloaded(transport, "/x", len(DATA)) == DATA
    assert storage.asked == []


# -- addresses -------------------------------------------------------------------------------------------


def read(url: str, server: str = "http://hub.test") -> None:
    with PresignedClient(server).open(url, ByteRange(0, 1, 1)) as response:
        response.read()


def send(url: str, file: Path, server: str = "http://hub.test") -> None:
    request = UploadRequest("PUT", url)
    direct = PresignedClient(server)
    direct.put(lambda: request, lambda: Slice(file, 0, len(DATA), lambda _: None), len(DATA))


@pytest.mark.parametrize(
    "url", ["ftp://s3.test/x", "s3.test/x", "http://", "http://s3.test:port/x", "http://[/x", ""]
)
def test_what_is_no_address_is_not_followed(url: str, file: Path) -> None:
    for act in (
        lambda: read(f"{url}?{SECRET}"),
        lambda: send(f"{url}?{SECRET}", file),
    ):
        with pytest.raises(BadResponse, match="an invalid storage URL") as caught:
            act()
        assert "5ecret" not in str(caught.value)


def test_a_server_over_https_never_sends_to_a_storage_without(storage: Stub, file: Path) -> None:
    url = f"{storage.url}/x?{SECRET}"
    for act in (
        lambda: read(url, "https://hub.test"),
        lambda: send(url, file, "https://hub.test"),
    ):
        with pytest.raises(BadResponse, match="uses https") as caught:
            act()
        assert "PT2HUB_S3_PUBLIC_ENDPOINT_URL" in str(caught.value.hint)
    assert storage.asked == []


def test_a_storage_that_cannot_be_reached_is_told_from_the_server() -> None:
    with pytest.raises(
        StorageUnavailable, match="The storage, not pt2hub's server, did not answer"
    ) as caught:
        read(f"http://127.0.0.1:1/bucket/blob?{SECRET}")
    assert caught.value.where == "http://127.0.0.1:1/bucket/blob"
    assert "127.0.0.1, ask the server's operator to set PT2HUB_S3_PUBLIC_ENDPOINT_URL" in str(
        caught.value.hint
    )
    assert "5ecret" not in repr(caught.value.as_dict())


def test_a_missing_file_is_named(client: Client, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="Cannot read") as caught:
        client.blobs.upload(tmp_path / "absent")
    assert caught.value.where == str(tmp_path / "absent")
