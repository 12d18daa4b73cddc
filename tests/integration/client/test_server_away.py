"""While the server is away: what references were last known to be, within an age, and never silently."""

from __future__ import annotations

import json
import sys
import time
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.client.artifacts.origin import LastKnownResolutionWarning
from pt2hub.client.availability import Availability
from pt2hub.client.client import Client
from pt2hub.domain.storage import StorageLocation
from pt2hub.errors import (
    BadResponse,
    NotFound,
    Offline,
    Pt2hubError,
    ResolutionExpired,
    ServerUnreachable,
    Unauthorized,
)
from support.artifacts import a_target
from support.mute import mute_server
from support.proxy import Proxy
from support.stub import Answer, Stub, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pt2hub.domain.digests import Digest
    from support.registry import Registry
    from support.shell import Shell

HERE = a_target().name
PROD, NUMBER = "vision/resnet18@prod", "vision/resnet18@1"
PROBLEM = "application/problem+json"
DAY = 86400.0


@pytest.fixture
def published(client: Client, served: Registry) -> Digest:
    """Version 1, on which the alias is."""
    served.worker("w0", HERE)
    digest = served.published(served.submit(targets=[HERE]))
    client.aliases.move("vision/resnet18", "prod", 1, reason="first")
    return digest


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    """What stands between the client and the server."""
    with Proxy(url) as made:
        yield made


@pytest.fixture
def user(client: Client, proxy: Proxy, published: Digest) -> Iterator[Client]:
    """A user who pulled the alias a moment ago."""
    with Client(replace(client.config, url=proxy.url)) as made:
        assert made.pull(PROD).manifest_digest == published
        made.pull(NUMBER)
        yield made


def age(client: Client, seconds: float) -> None:
    """Makes everything that is known older."""
    for path in (client.config.cache / "resolutions").rglob("*.json"):
        document = json.loads(path.read_text())
        if "resolved_at" in document:
            path.write_text(json.dumps(document | {"resolved_at": document["resolved_at"] - seconds}))


def refused(call: Any) -> Pt2hubError:
    with pytest.raises(Pt2hubError) as caught:
        call()
    return caught.value


def test_an_alias_is_what_it_was_last_known_to_be_and_says_so(
    user: Client, proxy: Proxy, published: Digest
) -> None:
    age(user, 3 * 3600)
    with proxy.refusing(), pytest.warns(LastKnownResolutionWarning) as warned:
        assert user.pull(PROD).manifest_digest == published
    (text,) = [str(item.message) for item in warned]
    assert text.startswith(f"{PROD} is version 1 as last known 3 h ago. The server did not answer: ")
    assert proxy.url in text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert user.pull(PROD).manifest_digest == published, "nothing is said once the server is back"


def test_an_alias_that_is_older_than_allowed_is_refused_with_its_age(user: Client, proxy: Proxy) -> None:
    age(user, 8 * DAY)
    with proxy.refusing():
        error = refused(lambda: user.pull(PROD))
        assert isinstance(error, ResolutionExpired)
        assert error.message == "The last known version is 1, as of 8 d ago; at most 7 d 0 h is allowed"
        assert "max_age" in str(error.hint)
        assert NUMBER in str(error.hint)
        with pytest.warns(LastKnownResolutionWarning):
            user.pull(PROD, max_age=9 * DAY)
        with pytest.warns(LastKnownResolutionWarning, match="has the artifacts as last known 8 d ago"):
            user.pull(NUMBER)  # a number always means the same
    age(user, -20 * DAY)
    with proxy.refusing():
        assert "this machine's clock" in refused(lambda: user.pull(PROD)).message


def test_a_server_that_recovers_is_believed_again(
    user: Client, proxy: Proxy, client: Client, served: Registry
) -> None:
    with proxy.refusing(), pytest.warns(LastKnownResolutionWarning):
        user.pull(PROD)
    other = served.published(
        served.submit(targets=[HERE], source={"factory": "torchvision.models:resnet18", "seed": 7})
    )
    client.aliases.move("vision/resnet18", "prod", 2, reason="second")
    assert user.pull(PROD).manifest_digest == other
    with proxy.refusing(), pytest.warns(LastKnownResolutionWarning, match="is version 2"):
        assert user.pull(PROD).manifest_digest == other


def test_without_an_earlier_answer_the_error_says_what_helps(user: Client, proxy: Proxy) -> None:
    with proxy.refusing():
        error = refused(lambda: user.pull("vision/resnet18@canary"))
    assert isinstance(error, ServerUnreachable)
    assert "never resolved on this machine" in str(error.hint)


@pytest.mark.parametrize(("status", "ours"), [(500, True), (503, True), (502, False), (504, False)])
def test_a_server_that_fails_is_away(user: Client, proxy: Proxy, *, status: int, ours: bool) -> None:
    kind = "transient" if status == 503 else "fatal"
    code = "database_unavailable" if status == 503 else "internal"
    body = (
        json.dumps({"code": code, "kind": kind, "detail": "It fails."}).encode()
        if ours
        else b"<html>proxy</html>"
    )
    with serving(Stub()) as stub:
        stub.script = [Answer(status, body, PROBLEM if ours else "text/html", {"Retry-After": "1"})]
        config = replace(user.config, url=stub.url)
        with Client(config) as other, pytest.raises(Pt2hubError) as caught:
            other.pull(PROD)
        assert "never resolved" in str(caught.value.hint)
        learn(user, config.url)
        begun = time.monotonic()
        with Client(config) as other, pytest.warns(LastKnownResolutionWarning):
            other.pull(PROD)
        assert time.monotonic() - begun < 4, "one attempt is enough where something is known"
    assert proxy.asked("resolve") == 2


def learn(user: Client, url: str) -> None:
    """Makes a server's answers known as another one's."""
    from pt2hub.client.artifacts.resolutions import ResolutionStore

    known = ResolutionStore(user.config.cache, user.config.url).find(PROD)
    assert known is not None
    ResolutionStore(user.config.cache, url).record(PROD, known.resolved)


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (404, "not_found", NotFound),
        (401, "unauthorized", Unauthorized),
        (403, "forbidden", Pt2hubError),
        (404, None, BadResponse),
    ],
)
def test_a_server_that_refuses_is_not_away(
    user: Client, status: int, code: str | None, expected: type[Pt2hubError]
) -> None:
    body = json.dumps({"code": code, "kind": "usage", "detail": "No."}).encode() if code else b"not found"
    with serving(Stub()) as stub:
        stub.script = [Answer(status, body, PROBLEM if code else "text/plain")]
        learn(user, stub.url)
        with Client(replace(user.config, url=stub.url)) as other, pytest.raises(expected):
            other.pull(PROD)


def test_a_server_that_accepts_and_never_answers_is_given_up_soon(
    user: Client, published: Digest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pt2hub.client.connection._HURRIED_S", 0.5)
    with mute_server() as url:
        learn(user, url)
        begun = time.monotonic()
        with (
            Client(replace(user.config, url=url)) as other,
            pytest.warns(LastKnownResolutionWarning, match="timed out"),
        ):
            assert other.pull(PROD).manifest_digest == published
        assert time.monotonic() - begun < 5


def test_one_broken_connection_is_no_reason_to_believe_what_was_known(
    user: Client, proxy: Proxy, client: Client, served: Registry
) -> None:
    other = {"source": {"factory": "torchvision.models:resnet18", "seed": 7}}
    digest = served.published(served.submit(targets=[HERE], **other))
    client.aliases.move("vision/resnet18", "prod", 2, reason="second")
    for kind in ("reset", "answer"):
        proxy.faults.clear()
        fault = proxy.fault(kind, "/resolve", times=1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert user.pull(PROD).manifest_digest == digest
        assert fault.hit == 1


def test_a_slow_server_gets_more_time_where_the_bucket_cannot_be_read(
    user: Client, proxy: Proxy, published: Digest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("pt2hub.client.connection._HURRIED_S", 0.2)
    monkeypatch.setitem(sys.modules, "boto3", None)
    bucket = Availability(storage=StorageLocation("s3://models/pt2hub", "http://127.0.0.1:1"))
    proxy.fault("delay", "/manifests/", seconds=0.6, down=True)
    reference = f"vision/resnet18@{published}"
    with Client(replace(user.config, home=tmp_path / "other", availability=bucket)) as other:
        assert other.pull(reference).manifest_digest == published


def test_offline_no_server_is_asked(user: Client, proxy: Proxy, published: Digest) -> None:
    before = len(proxy.requests)
    with pytest.warns(LastKnownResolutionWarning, match="pt2hub is offline"):
        assert user.pull(PROD, offline=True).manifest_digest == published
    assert user.pull(f"vision/resnet18@{published}", offline=True).manifest_digest == published
    error = refused(lambda: user.pull("vision/resnet18@canary", offline=True))
    assert isinstance(error, Offline)
    age(user, 8 * DAY)
    assert isinstance(refused(lambda: user.pull(PROD, offline=True)), ResolutionExpired)
    user.config.cache.joinpath("blobs").rename(user.config.cache / "elsewhere")
    error = refused(lambda: user.pull(f"vision/resnet18@{published}", offline=True))
    assert (error.code, error.where) == ("offline", published)
    assert len(proxy.requests) == before
    settings = replace(user.config, availability=Availability(offline=True))
    with Client(settings) as offline:
        for call in (
            offline.models.list,
            lambda: offline.publish({}),
            lambda: offline.pull(PROD, offline=False),
        ):
            assert refused(call).code in ("offline", "resolution_expired")
    assert len(proxy.requests) == before


def test_the_command_line_says_what_it_falls_back_to(
    user: Client, proxy: Proxy, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PT2HUB_URL", user.config.url)
    with proxy.refusing():
        told = shell("pull", PROD)
        assert told.code == 0
        assert f"warning: {PROD} is version 1 as last known" in told.err
        code, document = shell.json("pull", PROD)
        assert (code, len(document["warnings"])) == (0, 1)
        code, document = shell.json("pull", PROD, "--max-age", "0s")
        assert (code, document["error"]["code"]) == (1, "resolution_expired")
        assert shell("pull", PROD, "--max-age", "soon").code == 2
    code, document = shell.json("pull", PROD)
    assert (code, document["warnings"]) == (0, [])
    assert shell("pull", PROD, "--offline").code == 0
    monkeypatch.setenv("PT2HUB_OFFLINE", "1")
    code, document = shell.json("models")
    assert (code, document["error"]["code"]) == (1, "offline")
