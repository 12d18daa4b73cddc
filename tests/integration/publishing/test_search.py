"""Search over everything, by the API and on its page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.reading import EVERYTHING, Readable
from pt2hub.domain.tokens import Actor
from pt2hub.server.db.reading import limit_reading
from support.registry import GPU, V4

if TYPE_CHECKING:
    from flask.testing import FlaskClient

    from support.registry import Registry

MODEL = "vision/resnet18"


def hits(registry: Registry, typed: str, limit: int = 8) -> list[tuple[str, str, bool]]:
    found = registry.services.search.search(typed, limit=limit).hits
    return [(hit.kind, hit.name, hit.exact) for hit in found]


def test_models_are_found_by_a_part_of_their_names_and_the_one_that_is_meant_first(
    registry: Registry,
) -> None:
    for model in ("a/resnet18-x", MODEL, "nlp/bert"):
        registry.submit(model=model)
    assert hits(registry, "RESNET18") == [
        ("model", "a/resnet18-x", False),
        ("model", MODEL, True),
    ]
    assert hits(registry, f" {MODEL} ")[0] == ("model", MODEL, True)
    assert hits(registry, "resnet18", limit=1) == [("model", "a/resnet18-x", False)]
    assert hits(registry, "") == hits(registry, "%_") == hits(registry, "x" * 5000) == []


def test_versions_are_found_by_reference_and_by_digests(registry: Registry) -> None:
    claim = registry.claim(registry.submit().builds[0].id)
    registry.services.builds.record_weights(claim, registry.blob(b"weights", holder=claim.holder).digest)
    publication = registry.publication(claim)
    registry.services.builds.publish(claim, publication)
    artifact = publication.manifest.digest
    registry.services.aliases.move(MODEL, "prod", 1, expected=None, reason="first", by=Actor("t"))
    ((weights, identity),) = registry.sql("SELECT weights, identity FROM versions")
    version = ("version", f"{MODEL}@1")
    for typed in (artifact, weights, identity, f"{MODEL}@1", f"{MODEL}@prod"):
        assert (*version, True) in hits(registry, typed), typed
    for digest in (artifact, weights, identity):
        assert hits(registry, digest[7:13]) == [(*version, False)]
        assert hits(registry, digest[:13]) == [(*version, False)]
        assert hits(registry, digest[7:12]) == []  # five characters are too few
    details = [registry.services.search.search(text).hits[0].detail for text in (artifact, weights, identity)]
    assert details == [f"artifact for {V4}", "weights", "identity"]
    assert hits(registry, f"{MODEL}@2") == hits(registry, f"{MODEL}@none") == hits(registry, "a b@1") == []


def test_builds_targets_and_publishers_are_found(registry: Registry) -> None:
    registry.worker("gpu", GPU)
    build = registry.submit(targets=[GPU]).builds[0].id
    assert hits(registry, build) == [("build", build, True)]
    assert hits(registry, build[:6]) == [("build", build, False)]
    assert ("target", GPU, True) in hits(registry, GPU)
    assert ("target", GPU, False) in hits(registry, "h100")
    registry.sql('UPDATE versions SET published_by = \'{"kind": "token", "name": "Mary Poppins", "id": 1}\'')
    assert hits(registry, "poppins") == [("publisher", "Mary Poppins", False)]
    assert hits(registry, "mary poppins") == [("publisher", "Mary Poppins", True)]


def test_people_who_own_models_or_versions_are_found_by_their_labels(
    web: FlaskClient, registry: Registry
) -> None:
    registry.submit()
    registry.submit(model="nlp/resnet50")
    for model, number, owner in (
        (MODEL, None, "Ann of search"),
        (MODEL, 1, "Ann of search"),
        ("nlp/resnet50", 1, "Bert of ads"),
    ):
        registry.services.labels.change(
            model, number, put={"owner": owner}, remove=(), expected={}, by=Actor("t")
        )
    assert hits(registry, "ann OF") == [("owner", "Ann of search", False)]
    assert [hit.detail for hit in registry.services.search.search("of").hits] == [
        "owns models",
        "owns versions",
    ]
    limit_reading(Readable(("nlp/*",)))
    assert hits(registry, "of") == [("owner", "Bert of ads", False)]
    limit_reading(EVERYTHING)
    assert web.get("/search?q=ann+of+search").headers["Location"] == "/?label=owner%3DAnn+of+search"
    assert web.get("/search?q=bert+of+ads").headers["Location"] == "/versions?label=owner%3DBert+of+ads"
    conditions = web.get("/search?q=publisher=ci+owner=x").headers["Location"]
    assert conditions == "/versions?q=publisher%3Dci+owner%3Dx"
    quoted = web.get("/search", query_string={"q": 'owner="Carl of x" since=7d'}).headers["Location"]
    assert quoted == "/versions?q=owner%3D%22Carl+of+x%22+since%3D7d"
    for other in ("http://x?a=b", "a=b c", "state=good", 'owner="x', "=", "a b=c"):
        page = web.get("/search", query_string={"q": other})
        assert (page.status_code, "Nothing was found." in page.get_data(as_text=True)) == (200, True), other
    assert MODEL in web.get("/?label=owner%3DAnn+of+search").get_data(as_text=True)


def test_the_page_groups_what_was_found_and_opens_what_was_meant(
    web: FlaskClient, registry: Registry
) -> None:
    artifact = registry.published()
    registry.submit(model="nlp/resnet50")
    page = web.get("/search?q=resnet").get_data(as_text=True)
    assert "2 models match “resnet”." in page
    assert f'href="/models/{MODEL}"' in page
    assert "newest ready version 1" in page
    for typed, there in (
        (MODEL, f"/models/{MODEL}"),
        (artifact, f"/models/{MODEL}/versions/1"),
        (artifact[7:15], f"/models/{MODEL}/versions/1"),
        (V4, f"/targets?target={V4}"),
    ):
        response = web.get("/search", query_string={"q": typed})
        assert (response.status_code, response.headers.get("Location")) == (302, there)
    assert "Nothing matches “&lt;b&gt;”." in web.get("/search?q=<b>").get_data(as_text=True)
    for empty in ("/search", "/search?q=%00"):
        assert "Type a part of a name, or at least six characters of a digest" in web.get(empty).get_data(
            as_text=True
        )


@pytest.mark.parametrize("query", ["", "q=" + "x" * 211, "q=a&limit=0", "q=a&limit=51", "q=a%00"])
def test_the_api_refuses_a_text_that_cannot_be_searched(web: FlaskClient, query: str) -> None:
    assert web.get(f"/api/v1/search?{query}").status_code == 422


def test_the_api_returns_hits(web: FlaskClient, registry: Registry) -> None:
    registry.submit()
    (hit,) = web.get("/api/v1/search?q=resnet").get_json()["hits"]
    assert (hit["kind"], hit["name"], hit["model"], hit["number"]) == ("model", MODEL, MODEL, None)
