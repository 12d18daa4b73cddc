"""Who may read what: each reading route in each mode, against real requests.

In the mode `team` what may not be read is compared, letter by letter, with what does not exist.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.digests import Digest
from pt2hub.domain.reading import ReadMode
from pt2hub.domain.tokens import Actor, Scope
from pt2hub.server.api import waits
from pt2hub.server.api.app import create_app
from pt2hub.server.api.permissions import RULES, About
from pt2hub.server.pages.installation import install
from support.figures import latency, measured

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flask import Flask
    from flask.testing import FlaskClient
    from werkzeug.test import TestResponse

    from pt2hub.server.config import ServerConfig
    from support.registry import Registry

SERVED: list[Flask] = []
READING = {name: rule.about for name, rule in RULES.items() if rule.scope is Scope.READ}
SAME_SITE = {"Sec-Fetch-Site": "same-origin"}
OWN, OTHER, UNHEARD = "vision/resnet18", "nlp/bert", "nlp/unheard"
"""A token's own model, another team's, and a name that was never used."""
NONE = "f" * 64
HOST = {"os": "linux", "machine": "x86_64", "cpu_flags": []}
URLS = {
    "aliases.alias": "/api/v1/models/{model}/aliases/prod",
    "aliases.aliases": "/api/v1/models/{model}/aliases",
    "aliases.moves": "/api/v1/models/{model}/aliases/prod/moves",
    "artifacts.artifact": "/api/v1/artifacts/{digest}",
    "artifacts.check": "/api/v1/resolve",
    "artifacts.debug_log": "/api/v1/artifacts/{digest}/debug/fusion",
    "artifacts.debug_logs": "/api/v1/artifacts/{digest}/debug",
    "artifacts.kernels": "/api/v1/artifacts/{digest}/kernels",
    "artifacts.manifest": "/api/v1/models/{model}/manifests/{digest}",
    "artifacts.profile": "/api/v1/artifacts/{digest}/profile",
    "artifacts.resolve": "/api/v1/resolve?reference={model}@prod",
    "blobs.check": "/api/v1/blobs/{blob}/check",
    "blobs.download": "/api/v1/blobs/{blob}",
    "blobs.model": "/api/v1/artifacts/{digest}/model.pt2",
    "comparing.compare": "/api/v1/compare?before={model}@1&after={model}@1",
    "comparing.diff": "/api/v1/diff?before={model}@1&after={model}@1",
    "comparing.events": "/api/v1/performance/events?model={model}",
    "meta.targets": "/api/v1/targets",
    "metrics.metrics": "/metrics",
    "models.model": "/api/v1/models/{model}",
    "models.models": "/api/v1/models",
    "performance.history": "/api/v1/models/{model}/history?metric=latency_p50",
    "labels.labels_of_model": "/api/v1/models/{model}/labels",
    "labels.search": "/api/v1/versions",
    "search.search": "/api/v1/search?q={model}",
    "files.file": "/api/v1/models/{model}/versions/1/files/README.md",
    "files.files": "/api/v1/models/{model}/versions/1/files",
    "lineage.lineage": "/api/v1/models/{model}/versions/1/lineage",
    "performance.evaluations": "/api/v1/models/{model}/evaluations",
    "performance.metrics": "/api/v1/models/{model}/metrics",
    "policies.policy": "/api/v1/models/{model}/policy",
    "streams.build_events": "/api/v1/builds/{build}/events",
    "streams.log": "/api/v1/builds/{build}/log",
    "streams.logs": "/api/v1/builds/{build}/logs",
    "versions.build": "/api/v1/builds/{build}",
    "versions.builds": "/api/v1/builds?model={model}",
    "versions.version": "/api/v1/models/{model}/versions/1",
    "versions.versions": "/api/v1/models/{model}/versions",
    "usage.usage": "/api/v1/usage",
    "workers.workers": "/api/v1/workers",
    "pages.alias": "/models/{model}/aliases/prod",
    "pages.artifact": "/artifacts/{digest}",
    "pages.build": "/builds/{build}",
    "pages.builds": "/builds?model={model}",
    "pages.changes": "/changes?model={model}",
    "pages.compare": "/compare?before={model}@1&after={model}@1",
    "pages.debug_logs": "/artifacts/{digest}/debug",
    "pages.diff": "/diff?before={model}@1&after={model}@1",
    "pages.front": "/",
    "pages.lines": "/builds/{build}/lines",
    "pages.model": "/models/{model}",
    "pages.models": "/models",
    "pages.performance": "/models/{model}/performance",
    "pages.promotion": "/models/{model}/promotion?alias=prod&number=1",
    "pages.referrer": "/artifacts/{digest}/referrers/sha256:{none}",
    "pages.search": "/search?q={team}",
    "pages.sources": "/artifacts/{digest}/sources",
    "pages.steps": "/builds/{build}/steps",
    "pages.targets": "/targets",
    "pages.team": "/models/{team}",
    "pages.usage": "/usage",
    "pages.version": "/models/{model}/versions/1",
    "pages.versions": "/versions",
}
LISTS = {
    *(name for name, about in READING.items() if about in {About.LIST, About.NOTHING}),
    *("versions.builds", "comparing.events", "pages.builds", "pages.changes"),
}
UNRECORDED = {"not_recorded", "not_found", "invalid_input", "corrupt_archive"}
"""Codes of what the artifacts of this test lack, which were not compiled, and of a comparison of one with itself."""


@dataclass(frozen=True)
class Published:
    """A model with an artifact, or one that was never heard of."""

    model: str
    build: str
    digest: str
    blob: str

    @property
    def team(self) -> str:
        return self.model.partition("/")[0]

    def url(self, endpoint: str) -> str:
        return URLS[endpoint].format(
            model=self.model,
            team=self.team,
            build=self.build,
            digest=self.digest,
            blob=self.blob,
            none=NONE,
        )

    def hidden(self, text: str) -> str:
        """A response without what names this model."""
        text = re.sub(r">\d+ s ago<", ">some s ago<", text)
        for given in (self.model, self.build, self.digest, self.blob, self.model.partition("/")[2]):
            text = text.replace(given, "<given>")
        return text


NOBODY = Published(UNHEARD, "0" * 32, f"sha256:{NONE}", f"sha256:{NONE}")


@pytest.fixture
def teams(registry: Registry) -> dict[str, Published]:
    """A model of each of two teams, with the alias prod."""
    found = {}
    for model in (OWN, OTHER):
        version = registry.submit(model=model)
        digest = registry.published(version)
        registry.services.aliases.move(model, "prod", 1, expected=None, by=Actor("test"), reason="first")
        artifact = registry.services.resolve.artifact(digest)
        found[model] = Published(model, version.builds[0].id, str(digest), artifact.config_digest)
    return found


def serve(registry: Registry, config: ServerConfig, mode: ReadMode) -> FlaskClient:
    app = create_app(registry.services, replace(config, read=mode))
    install(app)
    SERVED.append(app)
    return app.test_client()


@pytest.fixture(autouse=True)
def stopped() -> Iterator[None]:
    """Ends the threads by which the applications follow builds."""
    yield
    while SERVED:
        waits.stop(SERVED.pop())


def ask(web: FlaskClient, endpoint: str, of: Published, token: str | None = None) -> TestResponse:
    """Sends a request; to a page with a session of the token, to the API with the token itself."""
    if endpoint.startswith("pages."):
        if token:
            web.post("/sign-in", data={"token": token}, headers=SAME_SITE)
        return web.get(of.url(endpoint), headers=SAME_SITE)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if endpoint == "artifacts.check":
        return web.post(of.url(endpoint), json={"reference": f"{of.model}@1", "host": HOST}, headers=headers)
    if endpoint == "blobs.check":
        return web.post(of.url(endpoint), headers=headers)
    return web.get(of.url(endpoint), headers=headers)


def is_read(answer: TestResponse) -> bool:
    """Whether a response shows what was asked for, or says that it was not recorded."""
    if answer.status_code < 400:
        return answer.headers.get("Location", "").partition("?")[0] != "/sign-in"
    document: dict[str, Any] = answer.get_json(silent=True) or {}
    text = answer.get_data(as_text=True)
    return (document.get("code") in UNRECORDED or not document) and "Model " not in text


def test_each_reading_route_is_requested_below() -> None:
    assert set(URLS) == set(READING)


@pytest.mark.parametrize("endpoint", sorted(URLS))
def test_public_reads_need_nothing_and_others_a_token(
    registry: Registry, config: ServerConfig, teams: dict[str, Published], endpoint: str
) -> None:
    of = teams[OTHER]
    assert is_read(ask(serve(registry, config, ReadMode.PUBLIC), endpoint, of))
    token = registry.services.access.create_token("ci", scopes=[Scope.BUILD], patterns=["vision/*"])
    for mode in (ReadMode.AUTHENTICATED, ReadMode.TEAM):
        web = serve(registry, config, mode)
        refused = ask(web, endpoint, of)
        assert not is_read(refused)
        if endpoint.startswith("pages."):
            assert refused.status_code == 303
            assert refused.headers["Location"].startswith("/sign-in?to=")
        else:
            assert (refused.status_code, refused.get_json()["code"]) == (401, "unauthorized")
            assert of.model not in refused.get_data(as_text=True)
        wrong = ask(web, endpoint, of, "pt2_wrong")
        assert not is_read(wrong)
    answer = ask(serve(registry, config, ReadMode.AUTHENTICATED), endpoint, of, token)
    assert is_read(answer), answer.get_data(as_text=True)[:2000]
    if "Cache-Control" in answer.headers:
        assert "private" in answer.headers["Cache-Control"] or "no-store" in answer.headers["Cache-Control"]


@pytest.mark.parametrize("endpoint", sorted(URLS))
def test_another_teams_models_do_not_exist(
    registry: Registry, config: ServerConfig, teams: dict[str, Published], endpoint: str
) -> None:
    token = registry.services.access.create_token("ci", scopes=[Scope.READ], patterns=["vision/*"])
    web = serve(registry, config, ReadMode.TEAM)
    own = ask(web, endpoint, teams[OWN], token)
    assert is_read(own), own.get_data(as_text=True)[:2000]
    if endpoint in LISTS:
        bare = Published("", "", "", "")
        text = ask(web, endpoint, bare, token).get_data(as_text=True)
        assert OTHER not in text
        if READING[endpoint] is About.NOTHING or endpoint == "workers.workers":
            return
    other = ask(web, endpoint, teams[OTHER], token)
    unheard = ask(web, endpoint, NOBODY, token)
    assert other.status_code == unheard.status_code
    seen, expected = (
        teams[OTHER].hidden(other.get_data(as_text=True)),
        NOBODY.hidden(unheard.get_data(as_text=True)),
    )
    assert seen == expected
    if READING[endpoint] is not About.LIST:
        assert other.status_code == 404, seen[:500]


def test_lists_counts_and_suggestions_leave_other_teams_out(
    registry: Registry, config: ServerConfig, teams: dict[str, Published]
) -> None:
    access = registry.services.access
    web = serve(registry, config, ReadMode.TEAM)

    def get(url: str, *patterns: str) -> str:
        token = access.create_token("ci", patterns=patterns)
        return web.get(url, headers={"Authorization": f"Bearer {token}"}).get_data(as_text=True)

    for patterns, names in (
        (("vision/*",), [OWN]),
        (("nlp/*", "vision/*"), [OTHER, OWN]),
        (("*/resnet18",), [OWN]),
        (("*",), [OTHER, OWN]),
        (("audio/*",), []),
        (("vision.x/*", "vision-*/*"), []),
    ):
        listed = json.loads(get("/api/v1/models", *patterns))["models"]
        assert [item["name"] for item in listed] == names
        builds = json.loads(get("/api/v1/builds", *patterns))["builds"]
        assert sorted({item["model"] for item in builds}) == names
    misspelled = get("/api/v1/models/vision/brt", "vision/*")
    assert "nlp" not in misspelled
    assert OTHER in get("/api/v1/models/vision/bert", "*")
    digest = teams[OTHER].digest
    assert OTHER in get(f"/api/v1/resolve?reference={OWN}@{digest}", "*")
    assert OTHER not in get(f"/api/v1/resolve?reference={OWN}@{digest}", "vision/*")


def test_a_run_for_a_model_that_may_not_be_read_is_listed_without_its_job(
    registry: Registry, config: ServerConfig, teams: dict[str, Published]
) -> None:
    measured(registry, Digest(teams[OWN].digest), latency(12.0, 12.5, 13.0))
    registry.sql("UPDATE measurements SET run = %s RETURNING 1", f"{teams[OTHER].build}:1")
    url = f"/artifacts/{teams[OWN].digest}?view=benchmark"
    everything = serve(registry, config, ReadMode.PUBLIC).get(url).get_data(as_text=True)
    assert teams[OTHER].build in everything
    assert "as baseline of version 1" in everything
    token = registry.services.access.create_token("ci", scopes=[Scope.READ], patterns=["vision/*"])
    web = serve(registry, config, ReadMode.TEAM)
    web.post("/sign-in", data={"token": token}, headers=SAME_SITE)
    own = web.get(url).get_data(as_text=True)
    assert "12.5 ms" in own
    assert teams[OTHER].build not in own
    assert "as baseline of" not in own


def test_a_build_of_another_team_is_not_found_by_what_changes_it(
    registry: Registry, config: ServerConfig, teams: dict[str, Published]
) -> None:
    token = registry.services.access.create_token("ci", admin=True, patterns=["vision/*"])
    web, headers = serve(registry, config, ReadMode.TEAM), {"Authorization": f"Bearer {token}"}
    for build in (teams[OTHER].build, NOBODY.build):
        answer = web.post(f"/api/v1/builds/{build}/retry", headers=headers)
        assert (answer.status_code, answer.get_json()["detail"]) == (404, f"Build {build} not found")


def test_what_was_deleted_says_so_to_those_who_could_read_it(
    registry: Registry, config: ServerConfig, teams: dict[str, Published]
) -> None:
    token = registry.services.access.create_token("ci", patterns=["vision/*"])
    by, web = Actor("root", admin=True), serve(registry, config, ReadMode.TEAM)
    for of in teams.values():
        registry.services.forced_deletion.delete(of.model, 1, by=by, reason="leaked", keep_shared=True)
    for endpoint in ("artifacts.artifact", "versions.build", "pages.artifact", "pages.build"):
        own, other = (ask(web, endpoint, teams[team], token) for team in (OWN, OTHER))
        assert (own.status_code, "leaked" in own.get_data(as_text=True)) == (410, True), endpoint
        assert (other.status_code, "leaked" in other.get_data(as_text=True)) == (404, False), endpoint


def test_a_report_of_another_teams_artifact_finds_none(
    registry: Registry, config: ServerConfig, teams: dict[str, Published]
) -> None:
    token = registry.services.access.create_token("ci", patterns=["vision/*"])
    web, headers = serve(registry, config, ReadMode.TEAM), {"Authorization": f"Bearer {token}"}
    texts = []
    for of in (teams[OTHER], NOBODY):
        measured = {"key": "a", "artifact": of.digest, "metric": "accuracy", "value": 0.7, "unit": "1"}
        machine = {"environment": {"cpu_model": "EPYC", "cores": 2, "torch": "2.13.0"}}
        answer = web.post(
            "/api/v1/measurements", json={"measurements": [measured | machine]}, headers=headers
        )
        texts.append(of.hidden(answer.get_data(as_text=True)))
    assert texts[0] == texts[1]
    assert "artifact not found" in texts[0]


def test_the_links_of_pages_are_read_with_the_browsers_session(
    registry: Registry, config: ServerConfig, teams: dict[str, Published]
) -> None:
    token = registry.services.access.create_token("ci", scopes=[Scope.READ], patterns=["vision/*"])
    web = serve(registry, config, ReadMode.TEAM)
    web.post("/sign-in", data={"token": token}, headers=SAME_SITE)
    assert web.get(teams[OWN].url("blobs.download")).status_code == 200
    assert web.get(teams[OTHER].url("blobs.download")).status_code == 404
    move = {"number": 1, "expected": 1, "reason": "x"}
    assert web.put("/api/v1/models/vision/resnet18/aliases/prod", json=move).status_code == 401


def test_who_must_sign_in_returns_to_the_page(
    registry: Registry, config: ServerConfig, teams: dict[str, Published]
) -> None:
    token = registry.services.access.create_token("ci", scopes=[Scope.READ])
    web = serve(registry, config, ReadMode.AUTHENTICATED)
    led = web.get("/builds?state=failed")
    signed = web.post(led.headers["Location"], data={"token": token}, headers=SAME_SITE)
    assert signed.headers["Location"] == "/builds?state=failed"
    assert web.get(signed.headers["Location"]).status_code == 200
    assert teams[OWN].model in web.get("/").get_data(as_text=True)


@pytest.mark.parametrize(
    "header", ["Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP"]
)
def test_what_a_proxy_passes_on_is_not_from_this_machine(
    registry: Registry, config: ServerConfig, teams: dict[str, Published], header: str
) -> None:
    url, forwarded = teams[OWN].url("models.model"), {header: "198.51.100.7"}
    app = create_app(registry.services, config)
    install(app)
    assert config.reading is ReadMode.PUBLIC
    assert app.test_client().get(url).status_code == 200
    assert app.test_client().get(url, headers=forwarded).status_code == 401
    assert serve(registry, config, ReadMode.PUBLIC).get(url, headers=forwarded).status_code == 200
