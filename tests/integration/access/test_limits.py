"""Limits of requests, sign-ins, uploads, builds and storage, and what clients do about them."""

from __future__ import annotations

import io
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.client.client import Client
from pt2hub.client.config import ClientConfig
from pt2hub.client.http import rate_limits
from pt2hub.client.http.rate_limits import RateLimitWarning
from pt2hub.domain.digests import digest_bytes
from pt2hub.domain.limits import Limits
from pt2hub.domain.tokens import Actor
from pt2hub.errors import QuotaExceeded, RateLimited
from pt2hub.server.api.app import create_app
from pt2hub.server.api.client_address import find_client
from pt2hub.server.api.permissions import RULES
from pt2hub.server.container import open_container
from pt2hub.server.db import engine as engines
from pt2hub.server.services.access.rate_limits import RateLimitService
from support.registry import SERVER, V4, Registry, a_spec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from flask.testing import FlaskClient

    from pt2hub.server.config import ServerConfig

MIB = 1 << 20
NONE = Limits(0, 0, 0, 0, 0)


def limited(config: ServerConfig, **limits: int) -> Iterator[Registry]:
    with open_container(
        replace(config, limits=replace(NONE, **limits)), database_url=str(config.database_url)
    ) as container:
        yield Registry(container, str(config.database_url))


@pytest.fixture
def services(config: ServerConfig, request: pytest.FixtureRequest) -> Iterator[Registry]:
    """Services with the limits that a test names, and no others."""
    yield from limited(config, **request.param)


@pytest.fixture
def processes(migrated_url: str) -> Iterator[list[RateLimitService]]:
    """The rate limits of three processes over one database."""
    made = [engines.create(migrated_url) for _ in range(3)]
    yield [
        RateLimitService(engines.Sessions(each), replace(NONE, requests_per_token=30, sign_ins_per_address=4))
        for each in made
    ]
    for each in made:
        each.dispose()


def allowed(calls: list[Any]) -> int:
    """How many calls were not refused for their rate."""
    count = 0
    for call in calls:
        try:
            call()
        except RateLimited:
            continue
        count += 1
    return count


def test_all_processes_count_requests_of_a_token_together(processes: list[RateLimitService]) -> None:
    calls = [lambda each=each: each.count_request("token") for _ in range(40) for each in processes]
    assert allowed(calls) == 30
    assert allowed([lambda: processes[0].count_request("another")]) == 1


def test_requests_at_the_same_time_are_counted_each(processes: list[RateLimitService]) -> None:
    found: list[int] = []

    def send(each: RateLimitService) -> None:
        found.append(allowed([lambda: each.count_request("token")] * 40))

    threads = [threading.Thread(target=send, args=(each,)) for each in processes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(found) == 30


def test_a_process_overlooks_at_most_its_batch(migrated_url: str) -> None:
    made = [engines.create(migrated_url) for _ in range(2)]
    processes = [
        RateLimitService(engines.Sessions(each), replace(NONE, requests_per_token=1000)) for each in made
    ]
    calls = [lambda each=each: each.count_request("token") for _ in range(1000) for each in processes]
    batch = 10  # a hundredth of the limit
    assert 1000 <= allowed(calls) <= 1000 + batch
    for each in made:
        each.dispose()


def test_the_refusal_says_when_to_come_back_and_the_counter_begins_again(
    registry: Registry, processes: list[RateLimitService]
) -> None:
    for _ in range(4):
        processes[0].count_sign_in("192.0.2.1")
    with pytest.raises(RateLimited, match="at most 4 a minute") as refused:
        processes[1].count_sign_in("192.0.2.1")
    assert 50 <= refused.value.context["retry_after"] <= 60
    processes[1].count_sign_in("192.0.2.2")

    registry.sql("UPDATE rate_counters SET expires_at = now() - interval '1 second'")
    processes[2].count_sign_in("192.0.2.1")
    registry.sql("UPDATE rate_counters SET expires_at = now() - interval '1 second'")
    processes[0].sweep()
    assert registry.sql("SELECT count(*) FROM rate_counters") == [(0,)]


def test_counters_hold_no_tokens(registry: Registry, processes: list[RateLimitService]) -> None:
    processes[0].count_request("pt2_secret")
    ((key,),) = registry.sql("SELECT key FROM rate_counters")
    assert "secret" not in key


@pytest.mark.parametrize(
    ("peer", "forwarded", "found"),
    [
        ("192.0.2.1", "", "192.0.2.1"),
        ("192.0.2.1", "198.51.100.9", "192.0.2.1"),  # no proxy of ours
        ("127.0.0.1", "198.51.100.9", "198.51.100.9"),
        ("127.0.0.1", "1.2.3.4, 198.51.100.9", "198.51.100.9"),  # the client wrote the first
        ("127.0.0.1", "198.51.100.9, 10.0.0.5", "198.51.100.9"),  # two proxies of ours
        ("127.0.0.1", "198.51.100.9, nonsense", "127.0.0.1"),
        ("127.0.0.1", "", "127.0.0.1"),
        ("::ffff:192.0.2.1", "", "192.0.2.1"),
        ("2001:db8::1234:1", "", "2001:db8::/64"),
        ("", "", ""),
    ],
)
def test_the_address_of_a_client_is_what_trusted_proxies_say(peer: str, forwarded: str, found: str) -> None:
    assert find_client(peer, forwarded.split(","), ("127.0.0.1", "10.0.0.0/8")) == found


@pytest.mark.parametrize("services", [{"requests_per_token": 3}], indirect=True)
def test_a_request_beyond_the_limit_is_answered_429(services: Registry, config: ServerConfig) -> None:
    web = create_app(services.services, config).test_client()
    bearer = {"Authorization": f"Bearer {services.services.access.create_token('ci')}"}
    for _ in range(3):
        assert web.get("/api/v1/whoami", headers=bearer).status_code == 200

    refused = web.get("/api/v1/whoami", headers=bearer)

    assert (refused.status_code, refused.get_json()["code"]) == (429, "rate_limited")
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    assert web.get("/healthz").status_code == 200
    other = {"Authorization": f"Bearer {services.services.access.create_token('other')}"}
    assert web.get("/api/v1/whoami", headers=other).status_code == 200


@pytest.mark.parametrize("services", [{"requests_per_token": 3}], indirect=True)
def test_the_client_waits_for_its_turn_and_says_so(
    services: Registry, config: ServerConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from werkzeug.serving import make_server

    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        services.sql("UPDATE rate_counters SET expires_at = now()")
        services.services.rate_limits._requests.limiter.storage._counts.clear()

    monkeypatch.setattr(rate_limits.time, "sleep", sleep)
    server = make_server("127.0.0.1", 0, create_app(services.services, config), threaded=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    token = services.services.access.create_token("client")
    url = f"http://127.0.0.1:{server.server_port}"
    try:
        with Client(ClientConfig(home=tmp_path / "client", url=url, token=token)) as client:
            for _ in range(3):
                client.whoami()
            with pytest.warns(RateLimitWarning, match=r"limits the rate of requests: waiting \d+ s"):
                assert client.whoami().name == "client"
            assert len(slept) == 1
            data = tmp_path / "blob"
            data.write_bytes(b"x" * 1000)
            for _ in range(2):
                client.whoami()
            with pytest.warns(RateLimitWarning):  # and a body is sent from its begin again
                assert client.blobs.upload(data) == digest_bytes(b"x" * 1000)
            monkeypatch.setattr(rate_limits, "MAX_WAIT_S", 0.0)
            calls = [client.whoami] * 4
            assert allowed(calls) < len(calls)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("services", [{"sign_ins_per_address": 2}], indirect=True)
def test_sign_ins_from_one_address_are_limited(services: Registry, config: ServerConfig) -> None:
    from pt2hub.server.pages.installation import install

    app = create_app(services.services, config)
    install(app)
    web, same_site = app.test_client(), {"Sec-Fetch-Site": "same-origin"}
    token = services.services.access.create_token("ada")

    def sign_in(given: str, **headers: str) -> Any:
        return web.post("/sign-in", data={"token": given}, headers=same_site | headers)

    assert [sign_in("pt2_wrong").status_code for _ in range(2)] == [401, 401]
    refused = sign_in(token)
    assert refused.status_code == 429
    assert "Too many sign-ins from your address" in refused.get_data(as_text=True)
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    assert sign_in(token, **{"X-Forwarded-For": "198.51.100.9"}).status_code == 303


@pytest.mark.parametrize("services", [{"builds_per_team": 2}], indirect=True)
def test_a_team_has_at_most_so_many_unfinished_builds(services: Registry) -> None:
    services.submit(model="vision/one")
    second = services.submit(model="vision/two")
    with pytest.raises(QuotaExceeded, match="Team vision has 2 queued and running builds") as refused:
        services.submit(model="vision/three")
    assert refused.value.context == {"team": "vision", "used": 2, "limit": 2}
    assert services.sql("SELECT count(*) FROM models WHERE name = 'vision/three'") == [(0,)]
    services.submit(model="audio/one")  # another team
    assert services.submit(model="vision/two").number == second.number  # nothing new

    services.services.builds.cancel(second.builds[0].id, by=Actor("test"))
    services.submit(model="vision/three")


@pytest.mark.parametrize("services", [{"builds_per_team": 1}], indirect=True)
def test_two_requests_do_not_both_take_the_last_place(services: Registry) -> None:
    outcomes: list[str] = []

    def submit(name: str) -> None:
        try:
            services.submit(model=f"vision/{name}")
            outcomes.append("taken")
        except QuotaExceeded:
            outcomes.append("refused")

    threads = [threading.Thread(target=submit, args=(f"m{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["refused"] * 5 + ["taken"]


@pytest.mark.parametrize("services", [{"builds_per_team": 1}], indirect=True)
def test_measuring_jobs_count_as_builds(services: Registry) -> None:
    services.published()
    services.submit(model="vision/other")
    with pytest.raises(QuotaExceeded):
        services.services.measuring_jobs.measure("vision/resnet18@1", by=Actor("test"))


@pytest.mark.parametrize("services", [{"bytes_per_team": 20}], indirect=True)
def test_a_team_that_stores_too_much_gets_no_new_version(services: Registry) -> None:
    services.published()
    with pytest.raises(
        QuotaExceeded, match=r"Team vision stores .* has reached its limit of 20 B"
    ) as refused:
        services.submit(model="vision/other")
    assert "pt2hub usage vision" in str(refused.value.hint)
    services.submit(model="audio/one")
    services.submit(targets=[V4, "torch2.13-cpu-x86_64_v3"])  # a further target of what there is


@pytest.mark.parametrize("services", [{"uploads_per_token": 2}], indirect=True)
def test_a_token_has_at_most_so_many_open_uploads(services: Registry) -> None:
    uploads = services.services.uploads
    begun = [uploads.begin(digest_bytes(bytes([number])), 1, by=Actor("ci")) for number in range(2)]
    with pytest.raises(QuotaExceeded, match="too many open uploads"):
        uploads.begin(digest_bytes(b"another"), 7, by=Actor("ci"))
    uploads.begin(digest_bytes(b"another"), 7, by=Actor("other"))
    uploads.cancel(str(begun[0].id), by=Actor("ci"))
    uploads.begin(digest_bytes(b"third"), 5, by=Actor("ci"))


def test_usage_counts_each_blob_once_per_team(registry: Registry) -> None:
    usage = registry.services.usage
    assert usage.view().teams == ()
    registry.published()
    (one,) = usage.view("vision").teams
    assert (one.models, one.versions, one.artifacts, one.builds) == (1, 1, 1, 0)
    total = registry.sql(
        "SELECT sum(size) FROM blobs WHERE (kind, digest) IN (SELECT kind, digest FROM blob_references)"
    )
    assert one.stored_bytes == int(total[0][0])

    # The same weights and code again: only what is new counts.
    registry.published(registry.submit(model="vision/copy"))
    registry.submit(model="audio/net")
    audio, vision = usage.view().teams
    assert (audio.team, audio.stored_bytes, audio.builds) == ("audio", 0, 1)
    assert one.stored_bytes < vision.stored_bytes < 2 * one.stored_bytes


def test_the_usage_of_nobody_is_not_found(api: FlaskClient) -> None:
    refused = api.get("/api/v1/usage?team=nobody")
    assert (refused.status_code, refused.get_json()["code"]) == (404, "not_found")
    assert api.get("/api/v1/usage").get_json() == {"teams": [], "max_builds": 1000, "max_bytes": 0}


class _Endless(io.RawIOBase):
    """A body that goes on for ever, and counts what is read of it."""

    count = position = 0

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.position = 1 << 40 if whence == io.SEEK_END else offset
        return self.position

    def readinto(self, buffer: Any) -> int:
        self.count += len(buffer)
        assert self.count < 100 * MIB, "the body is read without a limit"
        buffer[:] = b" " * len(buffer)
        return len(buffer)


def test_no_route_reads_a_body_without_limit(api: FlaskClient) -> None:
    container = api.application.extensions["pt2hub"].container
    bearer = {"Authorization": f"Bearer {container.access.create_token('admin', admin=True)}"}
    build = container.publish.submit(a_spec(), by=SERVER).builds[0].id
    given = {"team": "vision", "name": "resnet18", "alias": "prod", "number": 1, "digest": digest_bytes(b"x")}
    seen = 0
    for rule in api.application.url_map.iter_rules():
        for method in (rule.methods or set()) & {"POST", "PUT", "PATCH", "DELETE"}:
            if rule.endpoint not in RULES or rule.endpoint.startswith("pages."):
                continue
            values = {name: given.get(name, build) for name in rule.arguments}
            path = api.application.url_map.bind("").build(rule.endpoint, values, method=method)
            body = _Endless()
            answer = api.open(
                path,
                method=method,
                headers=bearer,
                input_stream=body,
                content_type="application/json",
            )
            seen += 1
            assert body.count <= 9 * MIB, (rule.endpoint, body.count)
            assert answer.status_code < 500, (rule.endpoint, answer.get_data())
    assert seen >= 12
