"""Lineage: given at publication or later, without cycles, shown both ways, and no part of any version's identity."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.lineage import MAX_PARENTS
from pt2hub.domain.reading import EVERYTHING, Readable
from pt2hub.domain.tokens import SERVER
from pt2hub.errors import InvalidInput, LineageCycle, NotFound, Pt2hubError
from pt2hub.server.container import Container
from pt2hub.server.db import engine as engines
from pt2hub.server.db.queue import BuildQueue
from pt2hub.server.db.reading import limit_reading
from support.registry import SILENCE, V3, a_spec
from support.roles import worker_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flask.testing import FlaskClient

    from pt2hub.client.client import Client
    from pt2hub.wire.lineage import DerivationView
    from support.registry import Registry
    from support.shell import Shell

MODEL, STUDENT, SECRET = "vision/resnet18", "vision/student", "ads/net"
HUB = "hf:team/resnet18@v1"


def lineage(registry: Registry, model: str, number: int, depth: int = 4) -> tuple[list[str], list[str]]:
    """Ancestors and descendants of a version, as arrows."""
    found = registry.services.lineage.lineage(model, number, depth=depth)
    return arrows(found.ancestors), arrows(found.descendants)


def arrows(items: tuple[DerivationView, ...]) -> list[str]:
    return [f"{item.version} {item.relation} {item.parent}" for item in items]


def add(registry: Registry, model: str, number: int, *derivations: str) -> list[str]:
    found = registry.services.lineage.change(model, number, add=derivations, remove=[], by=SERVER)
    return arrows(found)


@pytest.fixture
def family(registry: Registry) -> Registry:
    """Versions: resnet18@2 is tuned from @1, the student is distilled from @2, and another team's net from the student."""
    registry.submit(derived_from=[f"other:{HUB}"])
    registry.submit(dtype="bfloat16", derived_from=[f"fine-tuned:{MODEL}@1"])
    registry.submit(model=STUDENT, derived_from=[f"distilled:{MODEL}@2"])
    registry.submit(model=SECRET, derived_from=[f"quantized:{STUDENT}@1"])
    return registry


@pytest.fixture
def unreadable() -> Iterator[None]:
    """A request that may read the models of one team only."""
    limit_reading(Readable(("vision/*",)))
    yield
    limit_reading(EVERYTHING)


def test_lineage_is_given_with_a_spec_and_followed_both_ways(family: Registry) -> None:
    assert lineage(family, STUDENT, 1) == (
        [f"{STUDENT}@1 distilled {MODEL}@2", f"{MODEL}@2 fine-tuned {MODEL}@1", f"{MODEL}@1 other {HUB}"],
        [f"{SECRET}@1 quantized {STUDENT}@1"],
    )
    near = family.services.lineage.lineage(STUDENT, 1, depth=1)
    assert (len(near.ancestors), near.truncated) == (1, True)
    view = family.services.publish.version(MODEL, 2)
    assert (arrows(view.derived_from), arrows(view.derivatives)) == (
        [f"{MODEL}@2 fine-tuned {MODEL}@1"],
        [f"{STUDENT}@1 distilled {MODEL}@2"],
    )
    assert "derived_from" not in view.spec
    assert view.derived_from[0].identity == family.services.publish.version(MODEL, 1).identity


def test_a_publication_pins_an_alias_and_is_no_other_version(registry: Registry) -> None:
    first = registry.submit()
    registry.published(first)
    registry.services.aliases.move(MODEL, "prod", 1, expected=None, by=SERVER, reason="first")
    bare = registry.submit(model=STUDENT)
    again = registry.submit(model=STUDENT, derived_from=[f"distilled:{MODEL}@prod"])
    assert (again.number, again.identity, again.created) == (1, bare.identity, False)
    assert arrows(again.derived_from) == [f"{STUDENT}@1 distilled {MODEL}@1"]
    assert arrows(registry.submit(model=STUDENT).derived_from) == [f"{STUDENT}@1 distilled {MODEL}@1"]


def test_an_alias_counts_when_a_version_is_first_published(registry: Registry) -> None:
    def publish(**changes: Any) -> Any:
        return registry.submit(derived_from=[f"fine-tuned:{MODEL}@prod"], **changes)

    def promote(number: int, expected: int | None) -> None:
        registry.services.aliases.move(MODEL, "prod", number, expected=expected, by=SERVER, reason="next")

    registry.published(registry.submit())
    promote(1, None)
    second = publish(dtype="bfloat16")
    registry.published(second, key="second")
    promote(2, 1)
    again = publish(dtype="bfloat16")
    assert (again.number, arrows(again.derived_from)) == (2, [f"{MODEL}@2 fine-tuned {MODEL}@1"])
    assert again.notes == (
        f"{MODEL}@2 stays derived from {MODEL}@1: {MODEL}@prod was an alias of it when the version was published.",
    )
    registry.published(registry.submit(dtype="float16"), key="third")
    promote(3, 2)
    assert arrows(publish(dtype="bfloat16").derived_from) == [f"{MODEL}@2 fine-tuned {MODEL}@1"]
    with pytest.raises(LineageCycle, match="itself"):
        publish(dtype="float16")


def test_a_version_that_is_not_published_yet_is_no_parent(registry: Registry) -> None:
    registry.submit()
    with pytest.raises(NotFound) as caught:
        registry.submit(dtype="bfloat16", derived_from=[f"fine-tuned:{MODEL}@2"])
    assert f"{MODEL} has version 1" in str(caught.value) or "1 to 2" not in str(caught.value)


@pytest.mark.parametrize(
    ("derived_from", "status", "where"),
    [
        ([f"fine-tuned:{MODEL}@9"], 404, "derived_from[0]"),
        (["fine-tuned:no/such@1"], 404, "derived_from[0]"),
        ([f"other:{HUB}", f"fine-tuned:{MODEL}@staging"], 404, "derived_from[1]"),
        (["fine-tuned:vision/resnet18"], 422, "derived_from[0]"),
        (["tuned:vision/resnet18@1"], 422, "derived_from[0]"),
        (["other:" + "x" * 10_000], 422, "derived_from[0]"),
        ([{"relation": "other"}], 422, "derived_from[0]"),
        ("other:x", 422, "derived_from"),
        ([f"other:{HUB}{number}" for number in range(9)], 422, "derived_from"),
    ],
)
def test_a_publication_with_malformed_or_unknown_parents_publishes_nothing(
    api: FlaskClient,
    bearer: dict[str, str],
    registry: Registry,
    derived_from: object,
    status: int,
    where: str,
) -> None:
    registry.submit()
    for path in ("/api/v1/versions/preview", "/api/v1/versions"):
        refused = api.post(path, json=a_spec(model=STUDENT, derived_from=derived_from), headers=bearer)
        assert refused.status_code == status, refused.get_json()
        assert where in str(refused.get_json())
    assert registry.sql("SELECT count(*) FROM versions") == [(1,)]


def test_no_version_is_derived_from_itself_over_any_number_of_generations(family: Registry) -> None:
    for model, number, parent in ((MODEL, 1, MODEL), (MODEL, 1, SECRET), (MODEL, 2, STUDENT)):
        with pytest.raises(LineageCycle):
            add(family, model, number, f"other:{parent}@1")
    add(family, SECRET, 1, f"other:{MODEL}@1")  # a second way to the same ancestor is no cycle
    assert len(lineage(family, SECRET, 1)[0]) == 5


@pytest.mark.parametrize(
    ("derived_from", "expected"),
    [
        ([f"other:{SECRET}@1"], LineageCycle),
        ([f"other:{HUB}", f"other:{MODEL}@1"], LineageCycle),
        ([f"other:{HUB}{number}" for number in range(MAX_PARENTS)], InvalidInput),
    ],
)
def test_a_preview_says_what_the_publication_is_refused_for(
    family: Registry, derived_from: list[str], expected: type[Pt2hubError]
) -> None:
    family.services.lineage.change(MODEL, 1, add=["other:hf:team/another@v1"], remove=[], by=SERVER)
    document = a_spec(derived_from=derived_from)
    with pytest.raises(expected) as previewed:
        family.services.publish.check(document)
    with pytest.raises(expected) as refused:
        family.services.publish.submit(document, by=SERVER)
    assert str(previewed.value) == str(refused.value)
    assert family.services.publish.check(a_spec(derived_from=[f"other:{HUB}"])).number == 1


def test_of_additions_at_once_that_would_close_a_cycle_one_is_refused(registry: Registry) -> None:
    for name in ("a/one", "b/two", "c/three"):
        registry.submit(model=name)

    def derive(pair: tuple[str, str]) -> bool:
        try:
            add(registry, pair[0], 1, f"other:{pair[1]}@1")
        except LineageCycle:
            return False
        return True

    ring = [("a/one", "b/two"), ("b/two", "c/three"), ("c/three", "a/one")]
    with ThreadPoolExecutor(3) as pool:
        assert sum(pool.map(derive, ring)) == 2


@pytest.mark.usefixtures("unreadable")
def test_what_may_not_be_read_is_left_out_and_cannot_be_named(family: Registry) -> None:
    limit_reading(EVERYTHING)
    family.submit(model="ads/base")
    add(family, MODEL, 1, "other:ads/base@1")
    limit_reading(Readable(("vision/*",)))
    assert lineage(family, STUDENT, 1) == (
        [f"{STUDENT}@1 distilled {MODEL}@2", f"{MODEL}@2 fine-tuned {MODEL}@1", f"{MODEL}@1 other {HUB}"],
        [],
    )
    assert family.services.publish.version(STUDENT, 1).derivatives == ()
    refusals = []
    for parent in (f"{SECRET}@1", f"{SECRET}@9", "ads/none@1"):
        with pytest.raises(NotFound) as caught:
            add(family, STUDENT, 1, f"other:{parent}")
        refusals.append((str(caught.value).replace(parent.partition("@")[0], "MODEL"), caught.value.hint))
    assert len(set(refusals)) == 1, "unknown and unreadable models are refused in the same words"
    family.services.lineage.change(MODEL, 1, add=[], remove=["ads/base@1"], by=SERVER)
    limit_reading(EVERYTHING)
    assert f"{MODEL}@1 other ads/base@1" in lineage(family, MODEL, 1)[0]


def test_lineage_survives_the_deletion_of_a_parent(family: Registry) -> None:
    for table in ("builds", "versions"):
        column = "version_id" if table == "builds" else "id"
        family.sql(
            f"DELETE FROM {table} WHERE {column} = (SELECT versions.id FROM versions JOIN models"
            " ON models.id = model_id WHERE name = %s AND number = 2)",
            MODEL,
        )
    (item,) = family.services.lineage.lineage(STUDENT, 1).ancestors
    assert (item.parent, item.deleted, bool(item.identity)) == (f"{MODEL}@2", True, True)
    assert lineage(family, MODEL, 1)[1] == []


def test_a_version_that_reuses_code_with_other_weights_is_retrained_unless_its_parents_are_given(
    registry: Registry,
) -> None:
    url = worker_url(registry.database_url)
    engine = engines.create(url)
    worker = Container(
        engines.Sessions(engine), BuildQueue(url), registry.services.storage, heartbeat_timeout=SILENCE
    )

    def publish(weights: bytes, *, reused: bool = True, **changes: Any) -> None:
        claim = registry.claim(registry.submit(**changes).builds[0].id)
        provenance = {"build": claim.build, "attempt": claim.attempt, "request": claim.request}
        if reused:
            provenance["code_reused_from"] = registry.blob(b"code").digest
        publication = registry.publication(claim, weights_data=weights, provenance=provenance)
        worker.builds.publish(claim, publication)  # with the rights of workers

    publish(b"first", reused=False)
    publish(b"second", dtype="bfloat16")
    publish(b"third", dtype="float16", derived_from=[f"other:{HUB}"])
    publish(b"first", targets=[V3], dims={"batch": {"min": 1, "max": 8, "example": 2}})
    assert lineage(registry, MODEL, 2) == ([f"{MODEL}@2 retrained {MODEL}@1"], [])
    assert lineage(registry, MODEL, 3)[0] == [f"{MODEL}@3 other {HUB}"]
    assert lineage(registry, MODEL, 4) == ([], []), (
        "the same weights under another spec are no other training"
    )
    engine.dispose()
    second = registry.services.lineage.lineage(MODEL, 2).ancestors[0]
    assert (second.automatic, str(second.by)) == (True, "server")
    assert add(registry, MODEL, 2, f"fine-tuned:{MODEL}@1") == [f"{MODEL}@2 fine-tuned {MODEL}@1"]
    assert not registry.services.lineage.lineage(MODEL, 2).ancestors[0].automatic
    for parent, left in ((f"{MODEL}@1", [f"{MODEL}@2 retrained {MODEL}@1"]), (f"{MODEL}@1", [])):
        found = registry.services.lineage.change(MODEL, 2, add=[], remove=[parent], by=SERVER)
        assert [item.automatic for item in found] == [True] * len(left), "the note itself can be removed"
        assert lineage(registry, MODEL, 2)[0] == left
    assert not registry.services.lineage.change(MODEL, 2, add=[], remove=[f"{MODEL}@1"], by=SERVER)
    registry.sql("TRUNCATE models CASCADE")
    registry.services.reindex.reindex()
    assert lineage(registry, MODEL, 2)[0] == [f"{MODEL}@2 retrained {MODEL}@1"], "as storage knows it"


def test_lineage_changes_later_and_is_audited(
    api: FlaskClient, bearer: dict[str, str], registry: Registry
) -> None:
    registry.submit()
    registry.submit(model=STUDENT)
    address = f"/api/v1/models/{STUDENT}/versions/1/lineage"

    def change(status: int, **document: object) -> Any:
        answer = api.patch(address, json=document, headers=bearer)
        assert answer.status_code == status, answer.get_json()
        return answer.get_json()

    (item,) = change(200, add=[f"distilled:{MODEL}@1"])["derived_from"]
    assert (item["relation"], item["by"]["kind"], item["automatic"]) == ("distilled", "token", False)
    assert change(200, add=[f"distilled:{MODEL}@1"])["derived_from"] == [item]
    (item,) = change(200, add=[f"fine-tuned:{MODEL}@1"])["derived_from"]
    assert item["relation"] == "fine-tuned"
    change(422, add=["other"])
    change(422, nothing=1)
    change(422, add=[f"other:{HUB}"] * 9)
    change(404, add=[f"other:{MODEL}@2"])
    assert change(409, add=[f"other:{STUDENT}@1"])["code"] == "lineage_cycle"
    for number in range(7):
        change(200, add=[f"other:{HUB}{number}"])
    assert "at most 8" in str(change(422, add=[f"other:{HUB}9"]))
    found = api.get(f"{address}?depth=1").get_json()
    assert (len(found["ancestors"]), found["descendants"], found["truncated"]) == (8, [], False)
    assert api.get(f"{address}?depth=11").status_code == 422
    change(200, remove=[f"{MODEL}@1", "hf:nobody/knows@it"])
    actions = registry.sql("SELECT count(*) FROM audit_log WHERE action = 'version.lineage'")
    assert actions == [(10,)]
    assert len(api.get(f"/api/v1/models/{STUDENT}/versions/1").get_json()["derived_from"]) == 7


def test_lineage_is_read_and_changed_from_a_shell_and_from_python(
    shell: Shell, client: Client, served: Registry
) -> None:
    served.submit()
    served.submit(model=STUDENT, derived_from=[f"distilled:{MODEL}@1"])
    served.submit(model=SECRET, derived_from=[f"other:{STUDENT}@1"])
    shell("lineage", "add", f"{MODEL}@1", f"quantized:{HUB}")
    shown = shell("lineage", "show", f"{STUDENT}@1").out
    assert f"  {MODEL}@1 (distilled)\n    {HUB} (quantized)\n" in shown
    assert f"  {SECRET}@1 (other)\n" in shown
    assert len(shell.json("lineage", "show", f"{STUDENT}@1", "--depth", "1")[1]["ancestors"]) == 1
    assert f"{MODEL}@1 (distilled)" in shell("show", f"{STUDENT}@1").out
    assert f"{STUDENT}@1 (distilled)" in shell("show", f"{MODEL}@1").out
    cycle = shell("lineage", "add", f"{MODEL}@1", f"other:{SECRET}@1")
    assert (cycle.code, "[lineage_cycle]" in cycle.err) == (1, True)
    assert cycle.err.startswith(f"pt2hub: RELATION:PARENT 'other:{SECRET}@1': ")
    malformed = shell("lineage", "add", f"{MODEL}@1", f"other:{HUB}", "bad:thing")
    assert malformed.err.startswith("pt2hub: RELATION:PARENT 'bad:thing': Invalid derivation")
    assert "No parents" in shell("lineage", "rm", f"{STUDENT}@1", f"{MODEL}@1").out
    assert client.lineage.get(STUDENT, 1).ancestors == ()
    (item,) = client.lineage.change(STUDENT, 1, add=[f"retrained:{MODEL}@1"])
    assert item.relation == "retrained"
    version = client.publish(a_spec(model=STUDENT), derived_from=[f"other:{HUB}"])
    assert [one.parent for one in version.derived_from] == [f"{MODEL}@1", HUB]


def test_the_page_of_a_version_shows_its_lineage_as_lists(signed_in: FlaskClient, family: Registry) -> None:
    text = signed_in.get(f"/models/{STUDENT}/versions/1").get_data(as_text=True)
    assert 'aria-labelledby="ancestors"' in text
    assert f'href="/models/{MODEL}/versions/1"' in text
    assert 'href="https://huggingface.co/team/resnet18/tree/v1"' in text
    assert f'href="/models/{SECRET}/versions/1"' in text
    assert re.search(r"distilled, recorded by \w+ <time", text)
    family.submit(model="a/alone")
    own = {"relation": "other", "parent": f"{STUDENT}@1"}
    refused = signed_in.post(
        f"/models/{STUDENT}/versions/1/lineage", data=own, headers={"Sec-Fetch-Site": "same-origin"}
    )
    assert refused.status_code == 409
    assert "add[0]" not in refused.get_data(as_text=True), "the form has no such field"
    assert 'id="lineage"' not in signed_in.get("/models/a/alone/versions/1").get_data(as_text=True)
