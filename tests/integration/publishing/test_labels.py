"""Labels: set at publication and later, found by, and no part of any version's identity."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.labels import WELL_KNOWN
from pt2hub.domain.tokens import SERVER
from pt2hub.errors import LabelChanged
from support.registry import V3, V4, a_spec

if TYPE_CHECKING:
    from flask.testing import FlaskClient

    from pt2hub.client.client import Client
    from support.registry import Registry
    from support.shell import Shell

MODEL = "vision/resnet18"
ADDRESS = f"/api/v1/models/{MODEL}/versions/1/labels"
SHA, OTHER_SHA = "4f1c8a0e9d3b7c65f2a1908e7d6c5b4a39281706", "0" * 40
COMMON = f"{SHA[:4]}{OTHER_SHA[4:]}"
"""A commit that begins like another one."""


def publish(web: FlaskClient, bearer: dict[str, str], labels: object, **changes: Any) -> Any:
    return web.post("/api/v1/versions", json=a_spec(labels=labels, **changes), headers=bearer)


def values(document: dict[str, Any]) -> dict[str, str]:
    return {item["key"]: item["value"] for item in document["labels"]}


def test_labels_of_a_publication_are_no_part_of_its_identity_and_facts_stay(
    api: FlaskClient, bearer: dict[str, str], registry: Registry
) -> None:
    bare = registry.submit()
    first = publish(api, bearer, {"git.sha": SHA, "owner": "search", "license": "mit"})
    assert first.status_code == 200, "the same content is the same version"
    assert (first.get_json()["identity"], first.get_json()["notes"]) == (bare.identity, [])
    assert values(first.get_json()) == {"git.sha": SHA, "license": "MIT", "owner": "search"}
    again = publish(api, bearer, {"git.sha": OTHER_SHA, "owner": "vision"}).get_json()
    assert values(again) == {"git.sha": SHA, "license": "MIT", "owner": "vision"}
    stays = f"Label git.sha of vision/resnet18@1 stays {SHA}: it states where the version comes from and is set once."
    assert stays in again["notes"], "also where it was set after the first publication"
    assert "Label owner of vision/resnet18@1 changed from search to vision." in again["notes"]
    assert "owner" not in str(publish(api, bearer, {"owner": "vision"}).get_json()["notes"])
    (owner,) = [item for item in again["labels"] if item["key"] == "owner"]
    assert owner["by"]["kind"] == "token"
    assert owner["at"] > first.get_json()["labels"][0]["at"]
    assert "labels" not in again["spec"]


@pytest.mark.parametrize(
    ("labels", "where"),
    [
        ({"git.sha": "main"}, "labels.git.sha"),
        ({"Owner": "x"}, "labels"),
        ({"owner": "x" * 10_000}, "labels.owner"),
        ({"owner": 3}, "labels.owner"),
        ([], "labels"),
        ({f"k{number}": "v" for number in range(1000)}, "labels"),
    ],
)
def test_a_publication_with_malformed_labels_publishes_nothing(
    api: FlaskClient, bearer: dict[str, str], registry: Registry, labels: object, where: str
) -> None:
    for path in ("/api/v1/versions/preview", "/api/v1/versions"):
        refused = api.post(path, json=a_spec(labels=labels), headers=bearer)
        assert refused.status_code == 422, refused.get_json()
        assert where in str(refused.get_json())
    assert registry.sql("SELECT count(*) FROM versions") == [(0,)]


def test_labels_change_one_by_one_and_only_as_expected(
    api: FlaskClient, bearer: dict[str, str], registry: Registry
) -> None:
    registry.submit()

    def change(status: int, address: str = ADDRESS, **document: object) -> Any:
        answer = api.patch(address, json=document, headers=bearer)
        assert answer.status_code == status, answer.get_json()
        return answer.get_json()

    assert values(change(200, set={"stage": "new", "run": "https://runs.example.org/1"})) == {
        "run": "https://runs.example.org/1",
        "stage": "new",
    }
    change(200, set={"stage": "candidate"}, expected={"stage": "new", "owner": None})
    lost = change(409, set={"stage": "mine"}, expected={"stage": "new"})
    assert (lost["code"], lost["context"]) == ("label_changed", {"key": "stage", "value": "candidate"})
    for document in ({"set": {"run": "https://runs.example.org/2"}}, {"remove": ["run"]}):
        assert change(409, **document)["code"] == "label_immutable"
    change(200, set={"run": "https://runs.example.org/1"})  # the same again
    change(422, set={"stage": "x"}, remove=["stage"])
    change(422, set={"pt2hub.x": "y"})
    change(422, nothing=1)
    for document in ({"set": {"Owner": "x"}}, {"remove": ["Owner"]}, {"expected": {"Owner": None}}):
        assert change(422, **document)["detail"] == "Invalid label key 'Owner'"
    assert "too long (10,000 characters" in change(422, set={"owner": "x" * 10_000})["detail"]
    for document, message in (
        ({"set": {"owner": 3}}, "must be text"),
        ({"set": ["owner"]}, "must be an object"),
        ({"remove": "owner"}, "must be a list"),
        ({"nothing": 1}, "unknown field"),
        ({"expected": {"owner": ""}}, "the text is too short"),
    ):
        assert change(422, **document)["details"][0]["message"] == message
    for limit, message, allowed in (
        ("x", "must be a whole number", None),
        ("0", "the number is out of range", "at least 1"),
        ("1.5", "must be a whole number", None),
    ):
        (detail,) = api.get(f"/api/v1/models?limit={limit}").get_json()["details"]
        assert (detail["message"], detail["allowed"]) == (message, allowed)
    change(404, f"/api/v1/models/{MODEL}/versions/2/labels", set={"a": "b"})
    change(422, set={f"k{number}": "v" for number in range(63)})
    assert values(change(200, remove=["stage", "missing"])) == {"run": "https://runs.example.org/1"}
    change(200, f"/api/v1/models/{MODEL}/labels", set={"owner": "search"})
    assert api.get(f"/api/v1/models/{MODEL}").get_json()["labels"] == {"owner": "search"}
    page = api.get(f"/api/v1/models/{MODEL}/versions").get_json()
    assert page["versions"][0]["labels"] == {"run": "https://runs.example.org/1"}


def test_of_two_changes_at_once_one_is_refused(registry: Registry) -> None:
    registry.submit()

    def change(value: str) -> bool:
        try:
            registry.services.labels.change(
                MODEL, 1, put={"stage": value}, remove=[], expected={"stage": None}, by=SERVER
            )
        except LabelChanged:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(change, map(str, range(8)))) == 1


@pytest.fixture
def story(registry: Registry) -> Registry:
    """Versions with labels: two of resnet18 (the first ready and in production) and one of another team."""
    first = registry.submit(labels={"owner": "search", "git.sha": SHA, "note": "with space"})
    registry.published(first)
    registry.services.aliases.move(MODEL, "prod", 1, expected=None, by=SERVER, reason="first")
    registry.submit(labels={"owner": "search"}, dtype="bfloat16", targets=[V3])
    registry.submit(labels={"owner": "ads"}, model="ads/net")
    return registry


@pytest.mark.parametrize(
    ("conditions", "found"),
    [
        ([], ["ads/net@1", f"{MODEL}@2", f"{MODEL}@1"]),
        (["owner=search"], [f"{MODEL}@2", f"{MODEL}@1"]),
        (["owner"], ["ads/net@1", f"{MODEL}@2", f"{MODEL}@1"]),
        (["owner=search", f"git.sha={SHA}"], [f"{MODEL}@1"]),
        (["alias=prod"], [f"{MODEL}@1"]),
        (["state=ready"], [f"{MODEL}@1"]),
        (["state=pending", "model=vision/"], [f"{MODEL}@2"]),
        ([f"target={V4}"], ["ads/net@1", f"{MODEL}@1"]),
        (["model=ads/net"], ["ads/net@1"]),
        (["since=1h", "owner=ads"], ["ads/net@1"]),
        (["until=2020-01-01"], []),
        (["publisher=nobody"], []),
        (["license"], []),
        (["owner=search", "alias=prod", "state=ready", "since=1d", f"target={V4}"], [f"{MODEL}@1"]),
    ],
)
def test_versions_are_found_by_fields_and_labels(
    story: Registry, conditions: list[str], found: list[str]
) -> None:
    page = story.services.catalog.search(conditions)
    assert [f"{item.model}@{item.number}" for item in page.versions] == found


def test_pages_of_a_search_follow_each_other_and_misspelled_labels_are_named(
    api: FlaskClient, story: Registry
) -> None:
    address = "/api/v1/versions?where=owner&limit=2"
    first = api.get(address).get_json()
    second = api.get(f"{address}&after={first['next']}").get_json()
    assert [item["number"] for item in (*first["versions"], *second["versions"])] == [1, 2, 1]
    assert second["next"] is None
    wrong = api.get("/api/v1/versions?where=ownr=search")
    assert (wrong.status_code, wrong.get_json()["hint"]) == (422, "Did you mean owner?")
    assert api.get("/api/v1/versions?where=model=vision/resnet19").status_code == 404
    assert [item["name"] for item in api.get("/api/v1/models?label=owner=x").get_json()["models"]] == []
    story.services.labels.change(MODEL, None, put={"owner": "x"}, remove=[], expected={}, by=SERVER)
    assert [item["name"] for item in api.get("/api/v1/models?label=owner=x").get_json()["models"]] == [MODEL]
    story.services.labels.change(MODEL, None, put={"cost-centre": "7"}, remove=[], expected={}, by=SERVER)
    wrong = api.get("/api/v1/models?label=cost-center=7")
    assert (wrong.status_code, wrong.get_json()["hint"]) == (422, "Did you mean cost-centre?")
    wrong = api.get("/api/v1/models?label=note")
    assert (wrong.status_code, wrong.get_json()["hint"]) == (
        422,
        "Versions have it. To list them: pt2hub versions --where note",
    )


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        (SHA[:7], f"Did you mean git.sha={SHA}?"),
        (SHA[:12].upper(), f"Did you mean git.sha={SHA}?"),
        ("4f1", f"Did you mean git.sha={COMMON} or git.sha={SHA}?"),
        (
            "4f1c8a1",
            "No version has a git.sha that begins so; `git rev-parse 4f1c8a1` returns the full hash.",
        ),
        *(
            (name, "`git rev-parse NAME` returns the full hash of a branch, a tag or an abbreviated commit.")
            for name in ("main", "zz", "4f1c%")
        ),
    ],
)
def test_an_abbreviated_commit_is_refused_with_the_commits_that_begin_so(
    api: FlaskClient, story: Registry, given: str, hint: str
) -> None:
    story.submit(labels={"git.sha": COMMON}, model="ads/net", dtype="bfloat16")
    wrong = api.get("/api/v1/versions", query_string={"where": f"git.sha={given}"})
    assert (wrong.status_code, wrong.get_json()["hint"]) == (422, hint)
    assert wrong.get_json()["detail"].startswith("git.sha is compared whole: it must be a full hash")
    for whole in (SHA, SHA.upper()):
        assert api.get("/api/v1/versions", query_string={"where": f"git.sha={whole}"}).get_json()["versions"]
    several = api.get("/api/v1/versions?where=git.sha=4f1c").get_json()
    assert several["context"]["suggestions"] == [COMMON, SHA]


def test_an_abbreviated_commit_of_versions_or_models_is_refused_wherever_labels_filter(
    api: FlaskClient, web: FlaskClient, story: Registry
) -> None:
    wrong = api.get("/api/v1/models?label=git.sha=4f1c8a0").get_json()
    assert wrong["hint"] == f"Versions have it. To list them: pt2hub versions --where git.sha={SHA}"
    wrong = api.get("/api/v1/models?label=git.sha=4f1c8a1").get_json()
    assert wrong["hint"].startswith("No model has a git.sha that begins so;")
    story.services.labels.change(MODEL, None, put={"git.sha": COMMON}, remove=[], expected={}, by=SERVER)
    wrong = api.get("/api/v1/models?label=git.sha=4f1").get_json()
    assert wrong["hint"] == f"Did you mean git.sha={COMMON}?"
    page = web.get("/?label=git.sha=4f1c")
    assert page.status_code == 422
    for said in (COMMON, SHA, "full hash of 40 or 64 hex digits"):
        assert said in page.get_data(as_text=True)
    assert web.get(f"/?label=git.sha={SHA}").status_code == 200


def test_labels_are_set_and_searched_for_from_a_shell_and_from_python(
    shell: Shell, client: Client, served: Registry
) -> None:
    served.submit()
    shell("label", "set", f"{MODEL}@1", "stage=candidate", f"git.sha={SHA}")
    assert "candidate" in shell("label", "ls", f"{MODEL}@1").out
    lost = shell("label", "set", f"{MODEL}@1", "stage=approved", "--expect", "stage=new")
    assert (lost.code, "[label_changed]" in lost.err) == (1, True)
    shell("label", "set", f"{MODEL}@1", "stage=approved", "--expect", "stage=candidate")
    shell("label", "set", MODEL, "owner=search")
    headings, owner = shell("label", "ls", MODEL).out.splitlines()
    assert headings.split() == ["KEY", "VALUE", "BY", "SET"]
    (document,) = shell.json("label", "ls", MODEL)[1]["labels"]
    assert owner.split()[:2] == ["owner", "search"]
    assert document["by"]["name"] in owner
    assert shell("label", "ls", "vision/nothing").code == 1
    assert "stage    approved\n" in shell("show", f"{MODEL}@1").out
    for arguments in (("--where", "stage=approved"), (MODEL, "--where", f"git.sha={SHA}")):
        document = shell.json("versions", *arguments)[1]
        assert [(item["model"], item["number"]) for item in document["versions"]] == [(MODEL, 1)]
    assert "No version matches" in shell("versions", "--where", "stage=other").out
    assert MODEL in shell("models", "--label", "owner=search").out
    nothing = shell("models", "--label", f"git.sha={SHA}").out
    assert f"versions have such labels. To list them: pt2hub versions --where git.sha={SHA}" in nothing
    assert "but versions" not in shell("models", "--label", "license=MIT").out
    misspelled = shell("label", "set", f"{MODEL}@1", "stage=x", "--expect", "stagee=y")
    assert (misspelled.code, "Did you mean stage?" in misspelled.err) == (1, True)
    removed = shell("label", "rm", f"{MODEL}@1", "stage", "missing")
    assert (removed.code, removed.err.strip()) == (0, f"{MODEL}@1 has no label missing: nothing to remove.")
    assert {item.key for item in client.versions.get(MODEL, 1).labels} == {"git.sha"}
    assert shell("label", "set", f"{MODEL}@1", "stage").code == 2
    assert [item.number for item in client.versions.search("git.sha")] == [1]
    assert [item.value for item in client.labels.change(MODEL, 1, set={"owner": "ada"})] == [SHA, "ada"]


def test_pages_show_labels_as_text_and_links_and_search_by_them(web: FlaskClient, registry: Registry) -> None:
    labels = {"git.sha": SHA, "git.repository": "https://git.example.org/net", "note": "<b>bold</b> & co"}
    registry.submit(labels=labels)
    text = web.get(f"/models/{MODEL}/versions/1").get_data(as_text=True)
    assert f'href="https://git.example.org/net/commit/{SHA}"' in text
    assert "&lt;b&gt;bold&lt;/b&gt; &amp; co" in text
    assert "/versions?q=note%3D" in text
    found = web.get("/versions", query_string={"q": "note='<b>bold</b> & co'"}).get_data(as_text=True)
    assert f"{MODEL}@1" in found
    assert "No version matches" in web.get("/versions?q=git.sha=" + OTHER_SHA).get_data(as_text=True)
    bare = web.get("/versions?q=ci")
    said = bare.get_data(as_text=True)
    assert (bare.status_code, 'href="/search?q=ci"' in said) == (422, True)
    for part in (
        "No version has a label ci",
        "A condition is written KEY=VALUE",
        "<code>More conditions</code>",
    ):
        assert part in said, part
    said = web.get("/versions?label=ownr%3Dx").get_data(as_text=True)
    assert "Did you mean owner?" in said
    assert "<code>Label</code>" in said
    assert "KEY=VALUE" not in said
    for wrong in ("owner='", "alias=", "unknown=1"):
        assert web.get("/versions", query_string={"q": wrong}).status_code == 422


def test_each_well_known_key_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "labels.md").read_text()
    for key, known in WELL_KNOWN.items():
        assert f"| `{key}` | {known.meaning} |" in page
