"""Regions of an artifact, shown by `pt2hub show`, the API, the artifact's page and `pt2hub diff`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.artifacts import ProgramKey
from pt2hub.domain.digests import digest_bytes, digest_json
from support.artifacts import a_region
from support.pages import Page

if TYPE_CHECKING:
    from flask.testing import FlaskClient

    from pt2hub.domain.digests import Digest
    from support.registry import Registry
    from support.shell import Shell

MODEL = "vision/resnet18"
LAYERS = ("layers.0", "layers.1", "layers.2<b>")
ORIGIN = digest_bytes(b"another layer")
TEXTS = (
    "3 calls of layers.0 ... layers.2<b>, compiled once",
    f"1 call of head, reused from {ORIGIN[:19]}",
    "1 part around them, compiled",
)


def key(**fields: object) -> ProgramKey:
    return ProgramKey(digest_json(fields), fields)


@pytest.fixture
def published(served: Registry) -> Digest:
    """An artifact with three parts."""
    regions = (
        a_region(key(threads=4), *LAYERS),
        a_region("head", "head", code_reused_from=ORIGIN),
        a_region("rest"),
    )
    return served.published(key=key(schema=2, threads=4), regions=regions)


def test_a_version_shows_the_parts_of_its_artifacts(shell: Shell, published: Digest) -> None:
    lines = [line.strip() for line in shell("show", f"{MODEL}@1").out.splitlines()]
    at = next(at for at, line in enumerate(lines) if line.startswith("regions"))
    assert [lines[at].removeprefix("regions").strip(), *lines[at + 1 : at + 3]] == list(TEXTS)

    _, document = shell.json("show", f"{MODEL}@1")
    (artifact,) = document["artifacts"].values()
    assert [(item["calls"], item["modules"], item["code_reused_from"]) for item in artifact["regions"]] == [
        (3, list(LAYERS), None),
        (1, ["head"], ORIGIN),
        (1, [], None),
    ]
    assert artifact["regions"][1]["program_key"] == digest_bytes(b"head")
    assert document["builds"][0]["artifact"] == published


def test_the_api_lists_the_parts_of_an_artifact(web: FlaskClient, published: Digest, shell: Shell) -> None:
    view = web.get(f"/api/v1/artifacts/{published}").get_json()
    assert view["regions"] == shell.json("show", f"{MODEL}@1")[1]["artifacts"][view["target"]]["regions"]
    assert [item["members"] for item in view["config"]["regions"]] == [
        ["model/data/aotinductor/model/region.so"]
    ] * 3


def test_the_page_of_an_artifact_lists_its_parts_as_text(web: FlaskClient, published: Digest) -> None:
    page = web.get(f"/artifacts/{published}")
    assert page.status_code == 200
    text = Page(page.text).text
    for line in TEXTS:
        assert line in text
    assert "layers.2<b>" not in page.text


def test_an_artifact_compiled_as_a_whole_shows_no_parts(
    shell: Shell, web: FlaskClient, served: Registry
) -> None:
    digest = served.published()
    assert "regions" not in shell("show", f"{MODEL}@1").out
    assert web.get(f"/api/v1/artifacts/{digest}").get_json()["regions"] == []
    assert "Regions" not in Page(web.get(f"/artifacts/{digest}").text).text


def test_a_diff_says_why_a_part_was_not_reused(
    shell: Shell, web: FlaskClient, served: Registry, published: Digest
) -> None:
    version = served.submit(checks={"tolerance": 0.002})
    regions = (a_region(key(threads=8), *LAYERS), a_region("head", "head"))
    served.published(version, key=key(schema=2, threads=8), code=b"other", regions=regions)

    found = shell("diff", f"{MODEL}@1", f"{MODEL}@2")
    assert "1 of the second's 2 parts has a key of the first." in found.out
    assert "layers.0 ... layers.2<b>: The number of threads differs: 4, then 8." in found.out
    fields = shell.json("diff", f"{MODEL}@1", f"{MODEL}@2")[1]["key"]["fields"]
    path = "regions.layers.0 ... layers.2<b>.threads"
    assert {"path": path, "change": "changed", "before": 4, "after": 8} in fields
    page = web.get(f"/diff?before={MODEL}@1&after={MODEL}@2")
    assert "layers.0 ... layers.2<b>: The number of threads differs" in Page(page.text).text
    assert "layers.2<b>" not in page.text
    assert published
