"""Evaluations: reported per version with data set and count, compared, and required by protected aliases."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.principals import PrincipalKind
from pt2hub.domain.tokens import Actor
from pt2hub.errors import InvalidInput, PromotionCheckFailed
from support.pages import Page
from support.promoted import ADMIN, MODEL, move, protect, published

if TYPE_CHECKING:
    from pathlib import Path

    from flask.testing import FlaskClient

    from pt2hub.client.client import Client
    from pt2hub.wire.performance import PromotionCheckResult
    from support.registry import Registry
    from support.shell import Shell

DATA, OTHER_DATA = "imagenet-v2@sha256:" + "a" * 64, "sha256:" + "b" * 64


def an_evaluation(**changes: Any) -> dict[str, Any]:
    return {
        "key": "eval-1",
        "version": f"{MODEL}@1",
        "metric": "accuracy",
        "value": 0.763,
        "unit": "1",
        "data_set": DATA,
        "count": 10_000,
    } | changes


def evaluate(registry: Registry, number: int, value: float, *, by: str = "eval", **changes: Any) -> None:
    item = an_evaluation(version=f"{MODEL}@{number}", value=value, key=f"{number}-{value}-{changes}")
    registry.services.evaluations.report({"evaluations": [item | changes]}, by=Actor(by))


def test_evaluations_are_stored_once_and_listed(
    api: FlaskClient, bearer: dict[str, str], registry: Registry
) -> None:
    registry.submit()

    def post(status: int, *items: dict[str, Any]) -> Any:
        answer = api.post("/api/v1/evaluations", json={"evaluations": items}, headers=bearer)
        assert answer.status_code == status, answer.get_json()
        return answer.get_json()

    first = an_evaluation()
    assert post(201, first)["accepted"] == 1
    assert post(200, first) == {"accepted": 0, "duplicates": 1, "notes": []}
    assert post(409, first | {"value": 0.9})["code"] == "conflict"
    post(201, an_evaluation(key="2", data_set=OTHER_DATA, count=1), an_evaluation(key="3", value=0.77))
    address = f"/api/v1/models/{MODEL}/evaluations"
    page = api.get(f"{address}?limit=2").get_json()
    assert [item["value"] for item in page["evaluations"]] == [0.77, 0.763]
    rest = api.get(f"{address}?limit=2&before={page['next']}").get_json()
    assert (len(rest["evaluations"]), rest["next"]) == (1, None)
    on_other = api.get(f"{address}?metric=accuracy&data_set={OTHER_DATA}").get_json()["evaluations"]
    assert [(item["count"], item["data_set"], item["reporter"]) for item in on_other] == [(1, "", "test")]
    assert api.get(f"{address}?data_set=imagenet").status_code == 422
    assert "accuracy" in api.get(f"{address}?metric=acuracy").get_json()["hint"]
    shown = api.get(f"/api/v1/models/{MODEL}/versions/1").get_json()["evaluations"]
    assert {(item["data_digest"][-1], item["value"]) for item in shown} == {("a", 0.77), ("b", 0.763)}


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"data_set": "imagenet-v2"}, "data_set"),
        ({"data_set": "imagenet@sha256:abc"}, "data_set"),
        ({"data_set": ""}, "data_set"),
        ({"count": 0}, "count"),
        ({"count": -1}, "count"),
        ({"count": 1.5}, "count"),
        ({"value": "0.7"}, "value"),
        ({"value": True}, "value"),
        ({"value": float("nan")}, "value"),
        ({"value": float("inf")}, "value"),
        ({"unit": ""}, "unit"),
        ({"unit": None}, "unit"),
        ({"metric": "Top 1"}, "metric"),
        ({"metric": "latency_p50"}, "metric"),
        ({"version": f"{MODEL}@prod"}, "version"),
        ({"version": f"{MODEL}@2"}, "version"),
        ({"version": "no/model@1"}, "version"),
        ({"artifact": "x"}, "artifact"),
        ({"measured_at": "2199-01-01T00:00:00Z"}, "measured_at"),
        ({"measured_at": "2026-01-01"}, "measured_at"),
        ({"measured_at": "0001-01-01T00:00:00+14:00"}, "measured_at"),
        ({"measured_at": "9999-12-31T23:59:59-14:00"}, "measured_at"),
        ({"unit": "x" * 17}, "unit"),
    ],
)
def test_a_malformed_evaluation_is_refused_and_nothing_is_stored(
    registry: Registry, changes: dict[str, Any], path: str
) -> None:
    registry.submit()
    items = [an_evaluation(key="fine"), an_evaluation(**changes)]
    with pytest.raises(InvalidInput) as caught:
        registry.services.evaluations.report({"evaluations": items}, by=ADMIN)
    assert caught.value.where == f"evaluations[1].{path}"
    assert caught.value.hint
    assert registry.sql("SELECT count(*) FROM evaluations") == [(0,)]


def test_two_results_of_the_same_time_are_refused_since_neither_is_newer(registry: Registry) -> None:
    registry.submit()

    def report(*items: dict[str, Any]) -> int:
        return registry.services.evaluations.report({"evaluations": [*items]}, by=ADMIN).accepted

    first, other = (
        an_evaluation(key="z", value=0.5),
        an_evaluation(key="a", value=0.9, data_set="b@" + DATA[12:]),
    )
    with pytest.raises(InvalidInput, match="another result on the same data set at the same time") as caught:
        report(first, other)
    assert caught.value.where == "evaluations[1]"
    assert report(first, other | {"measured_at": "2026-01-01T00:00:00Z"}) == 2
    assert report(first | {"key": "y"}, first | {"key": "x"}) == 2, "they are the same result"


def test_a_result_that_returns_under_an_old_key_is_said_not_to_count(registry: Registry) -> None:
    registry.submit()

    def report(**changes: Any) -> tuple[str, ...]:
        return registry.services.evaluations.report(
            {"evaluations": [an_evaluation(**changes)]}, by=ADMIN
        ).notes

    assert report(value=0.9) == report(value=0.9) == report(key="2", value=0.8) == ()
    (note,) = report(value=0.9)
    assert note.startswith(f"accuracy 0.9 of {MODEL}@1 on imagenet-v2@sha256:aaaaaaaa was stored before")
    assert "a key of its own" in note
    assert report(key="3", value=0.9) == report(key="3", value=0.9) == ()


def test_a_time_in_a_zone_that_the_database_lacks_is_stored_in_utc(registry: Registry) -> None:
    registry.submit()
    item = an_evaluation(measured_at="2026-01-02T00:00:00+20:00")
    for accepted in (1, 0):
        assert registry.services.evaluations.report({"evaluations": [item]}, by=ADMIN).accepted == accepted
    (found,) = registry.services.evaluations.evaluations(MODEL).evaluations
    assert found.measured_at.startswith("2026-01-01T04:00:00")


def test_a_unit_that_is_too_long_is_a_text_that_is_too_long(registry: Registry) -> None:
    registry.submit()
    with pytest.raises(InvalidInput, match=r"the text is too long .*at most 16 characters"):
        registry.services.evaluations.report({"evaluations": [an_evaluation(unit="x" * 17)]}, by=ADMIN)


def check(registry: Registry, number: int) -> PromotionCheckResult:
    """The first check of a move of `prod`."""
    found, *_ = registry.services.aliases.preview(MODEL, "prod", number, by=Actor("ci").principal).checks
    return found


def test_a_version_may_fall_below_the_present_one_by_so_much_on_the_same_data(registry: Registry) -> None:
    for _ in range(2):
        published(registry)
    protect(registry, metrics={"accuracy": {"max_drop": 0.002, "reporters": ["eval*"]}})
    assert check(registry, 1).passed, "prod is on no version"
    move(registry, 1, None)
    assert "version 2 was not evaluated by eval*" in check(registry, 2).message
    evaluate(registry, 2, 0.7, by="someone")
    assert check(registry, 2).missing
    evaluate(registry, 2, 0.761)
    assert "version 1, which prod is on, was not evaluated" in check(registry, 2).message
    registry.services.aliases.remove(MODEL, "prod", reason="none is right", expected=1, by=Actor("ci"))
    assert "version 1, which prod was on last, was not evaluated" in check(registry, 2).message
    move(registry, 1, None)
    evaluate(registry, 1, 0.763, data_set=OTHER_DATA)
    found = check(registry, 2)
    assert (found.passed, found.missing, found.found) == (False, True, "not comparable")
    assert "not on the same data set" in found.message
    evaluate(registry, 1, 0.763, count=50)
    assert "the counts differ: 50 and 10,000" in check(registry, 2).message
    evaluate(registry, 1, 0.763, unit="%")
    assert "the units differ: % and 1" in check(registry, 2).message
    evaluate(registry, 1, 0.7631)
    found = check(registry, 2)
    assert (found.passed, found.missing) == (False, False)
    assert found.found == "0.761, 0.0021 below version 1 (0.7631)"
    assert found.needed == "at most 0.002 below the version before, on the same data set"
    evaluate(registry, 2, 0.763, data_set=OTHER_DATA)
    with pytest.raises(PromotionCheckFailed, match=r"at most 0\.002 below is allowed"):
        move(registry, 2, 1)
    evaluate(registry, 1, 0.763)
    assert check(registry, 2).passed, "a difference of 0.002 in floats is a little more"
    move(registry, 2, 1)
    evaluate(registry, 1, 0.5)
    assert not check(registry, 1).missing
    assert check(registry, 1).passed, "a rollback to what was there before is never held up"


def test_reports_that_do_not_count_hide_none_that_do(registry: Registry) -> None:
    for _ in range(2):
        published(registry)
    move(registry, 1, None)
    for data_set in (DATA, OTHER_DATA):
        evaluate(registry, 1, 0.9, data_set=data_set)
    evaluate(registry, 2, 0.5)
    evaluate(registry, 2, 0.9, data_set=OTHER_DATA)
    registry.sql(
        "UPDATE evaluations SET measured_at = measured_at - interval '1 day' WHERE data_digest = %s",
        DATA[12:],
    )
    flood = [
        an_evaluation(key=str(index), version=f"{MODEL}@{number}", value=1.0, data_set=data_set)
        for index, (number, data_set) in enumerate(
            (number, f"sha256:{count:064x}") for number in (1, 2) for count in range(999)
        )
    ]
    for part in (flood[:999], flood[999:]):
        registry.services.evaluations.report({"evaluations": part}, by=Actor("other"))
    evaluate(registry, 1, 0.9, data_set=OTHER_DATA, key="again")
    evaluate(registry, 2, 0.9, data_set=OTHER_DATA, key="again 2")
    protect(registry, metrics={"accuracy": {"max_drop": 0.1, "min": 0.8, "reporters": ["eval"]}})
    preview = registry.services.aliases.preview(MODEL, "prod", 2, by=None)
    assert sorted((item.passed, item.missing) for item in preview.checks) == [
        (False, False),
        (False, False),
        (True, False),
        (True, False),
    ]


def test_a_token_that_is_named_like_a_person_reports_nothing_that_counts_for_people(
    registry: Registry,
) -> None:
    published(registry)
    protect(registry, metrics={"accuracy": {"min": 0.8, "reporters": ["*@acme.example"]}})
    evaluate(registry, 1, 0.9, by="eve@acme.example")
    assert check(registry, 1).missing
    ada = Actor("ada@acme.example", kind=PrincipalKind.PERSON, person=1)
    registry.services.evaluations.report({"evaluations": [an_evaluation(value=0.9)]}, by=ada)
    assert check(registry, 1).passed


def test_limits_count_evaluations_of_one_data_set_or_of_each(registry: Registry) -> None:
    published(registry)
    evaluate(registry, 1, 0.8)
    evaluate(registry, 1, 0.5, data_set=OTHER_DATA)
    protect(registry, metrics={"accuracy": {"min": 0.75}})
    results = registry.services.aliases.preview(MODEL, "prod", 1, by=Actor("ci").principal).checks
    assert sorted(item.passed for item in results) == [False, True]
    protect(registry, metrics={"accuracy": {"min": 0.75, "data_set": DATA}})
    assert "imagenet-v2@sha256:aaaaaaaa" in check(registry, 1).message
    assert check(registry, 1).passed


@pytest.mark.parametrize(
    ("limit", "path"),
    [
        ({}, ""),
        ({"max_drop": -0.1}, ".max_drop"),
        ({"max_drop": float("nan")}, ".max_drop"),
        ({"max_drop": 0.1, "target": "torch2.13-cpu-x86_64_v4"}, ".target"),
        ({"min": 0.1, "data_set": "imagenet"}, ".data_set"),
    ],
)
def test_limits_that_cannot_be_met_are_refused(registry: Registry, limit: dict[str, Any], path: str) -> None:
    registry.submit()
    with pytest.raises(InvalidInput) as caught:
        protect(registry, metrics={"accuracy": limit})
    assert caught.value.where == f"protected.prod.metrics.accuracy{path}"


def test_a_check_of_performance_does_not_take_a_metric_of_evaluations(registry: Registry) -> None:
    for _ in range(2):
        published(registry)
    document = {
        "metrics": {"accuracy": {"better": "higher"}},
        "checks": [{"alias": "prod", "metric": "accuracy", "max_worse": 0.01, "missing": "pass"}],
    }
    registry.services.policies.put(MODEL, document, revision=0, by=ADMIN)
    move(registry, 1, None)
    for number in (1, 2):
        evaluate(registry, number, 0.8)
    assert "limits of a protected alias (max_drop)" in check(registry, 2).message
    with pytest.raises(InvalidInput, match="limit it for a protected alias") as caught:
        registry.services.policies.put(MODEL, document, revision=1, by=ADMIN)
    assert caught.value.where == "checks[0].metric"


def test_evaluations_are_reported_listed_and_compared_from_a_shell_and_from_python(
    shell: Shell, client: Client, served: Registry, tmp_path: Path
) -> None:
    for _ in range(2):
        published(served)
    keyless = [{name: value for name, value in an_evaluation().items() if name != "key"}]
    file = tmp_path / "evaluations.json"
    file.write_text(json.dumps(keyless))
    assert "1 evaluation stored.\n" in shell("report", str(file)).out
    assert "already stored" in shell("report", str(file)).out
    file.write_text(json.dumps([*keyless, {"artifact": f"{MODEL}@1"}]))
    assert "two files" in shell("report", str(file)).err
    second = an_evaluation(version=f"{MODEL}@2", value=0.75, key="2")
    assert client.performance.report_evaluations([second]).accepted == 1
    listed = shell("evaluations", MODEL, "accuracy").out
    assert "0.763" in listed
    assert "10,000" in listed
    assert [item.number for item in client.performance.evaluations(MODEL, data_set=DATA)] == [2, 1]
    assert "accuracy" in shell("show", f"{MODEL}@1").out
    arguments = ("compare", f"{MODEL}@1", f"{MODEL}@2")
    compared = shell(*arguments)
    assert "imagenet-v2@sha256:aaaaaaaa" in compared.out
    assert "-0.013" in compared.out
    (item,) = client.performance.compare(*arguments[1:]).evaluations
    assert (item.outcome, "whether lower or higher" in item.reason) == ("inconclusive", True)
    protect(served, metrics={"accuracy": {"min": 0.1}})  # declares that higher is better
    (item,) = client.performance.compare(*arguments[1:]).evaluations
    assert (item.outcome, item.reason) == ("worse", "")
    assert shell(*arguments, "--fail-on", "worse").code == 1
    document = {"metrics": {"accuracy": {"better": "higher", "min_effect": 0.05}}}
    served.services.policies.put(MODEL, document, revision=1, by=ADMIN)
    assert client.performance.compare(*arguments[1:]).evaluations[0].outcome == "same"


def test_evaluations_on_other_data_are_said_not_to_be_comparable(
    client: Client, shell: Shell, served: Registry
) -> None:
    for _ in range(2):
        published(served)
    evaluate(served, 1, 0.763)
    arguments = (f"{MODEL}@1", f"{MODEL}@2")
    (item,) = client.performance.compare(*arguments).evaluations
    assert item.reason == "not comparable: the second version was not evaluated by accuracy"
    evaluate(served, 2, 0.761, data_set=OTHER_DATA)
    found = client.performance.compare(*arguments).evaluations
    assert {item.outcome for item in found} == {"inconclusive"}
    assert [item.reason.partition("version was ")[2] for item in found] == [
        "evaluated on another data set: sha256:bbbbbbbb",
        "evaluated on another data set: imagenet-v2@sha256:aaaaaaaa",
    ]
    assert "not comparable" in shell("compare", *arguments).out


def test_pages_show_evaluations(web: FlaskClient, registry: Registry) -> None:
    for _ in range(2):
        published(registry)
    evaluate(registry, 1, 0.763, data_set="<b>data</b>@sha256:" + "a" * 64)
    evaluate(registry, 2, 0.763)
    text = web.get(f"/models/{MODEL}/versions/1").get_data(as_text=True)
    assert "&lt;b&gt;data&lt;/b&gt;" in text
    assert "0.763" in text
    page = web.get(f"/compare?before={MODEL}@1&after={MODEL}@2").get_data(as_text=True)
    assert 'aria-label="Evaluations of both versions"' in page


def test_the_pages_of_a_model_and_of_a_version_compare_evaluations_with_production(
    web: FlaskClient, registry: Registry
) -> None:
    for _ in range(3):
        published(registry)
    assert "Quality on your data" not in Page(web.get(f"/models/{MODEL}").get_data(as_text=True)).text
    protect(registry)
    move(registry, 1, None)
    for number, value in ((1, 76.3), (2, 77.0), (2, 76.9), (3, 75.8)):
        evaluate(registry, number, value, unit="%")
    evaluate(registry, 3, 12.0, unit="%", data_set=OTHER_DATA)
    model = Page(web.get(f"/models/{MODEL}").get_data(as_text=True))
    assert "accuracy on imagenet-v2 75.8 % of 3 -0.5 points" in model.text
    assert "accuracy on bbbbbbbbbbbb 12 % of 3 version 1 was not evaluated on this data set" in model.text
    html = web.get(f"/models/{MODEL}").get_data(as_text=True)
    assert 'aria-label="accuracy of 3 versions, from 75.8 % to 76.9 %"' in html, "the newest of each version"
    version = Page(web.get(f"/models/{MODEL}/versions/3").get_data(as_text=True)).text
    assert "accuracy is worse by 0.5 points" in version
    assert "-0.5 points" in version


def test_an_old_version_in_production_is_compared_however_many_versions_follow(registry: Registry) -> None:
    for number in range(1, 5):
        published(registry)
        evaluate(registry, number, 0.7)
    newest = registry.services.evaluations.newest
    assert [item.number for item in newest(MODEL, 2)] == [3, 4]
    assert [item.number for item in newest(MODEL, 2, also=1)] == [1, 3, 4]


def test_differences_of_percentages_are_in_points(registry: Registry) -> None:
    for _ in range(2):
        published(registry)
    protect(registry, metrics={"accuracy": {"max_drop": 0.2, "unit": "%"}})
    move(registry, 1, None)
    evaluate(registry, 1, 76.3, unit="%")
    evaluate(registry, 2, 76.0, unit="%")
    found = check(registry, 2)
    assert (found.passed, found.found) == (False, "76 %, 0.3 points below version 1 (76.3 %)")
    assert "at most 0.2 points below is allowed" in found.message


def test_a_data_set_on_which_only_the_present_version_was_evaluated_refuses_the_move(
    registry: Registry,
) -> None:
    for _ in range(2):
        published(registry)
    protect(registry, metrics={"accuracy": {"max_drop": 0.002}})
    move(registry, 1, None)
    for number, data_set in ((1, DATA), (1, OTHER_DATA), (2, DATA)):
        evaluate(registry, number, 0.8, data_set=data_set)
    better, lacking = registry.services.aliases.preview(MODEL, "prod", 2, by=None).checks[-2:]
    assert better.passed
    assert (lacking.passed, lacking.missing) == (False, True)
    assert "version 2 was not evaluated on " in lacking.message
    assert lacking.message.endswith("on which that of version 1 is 0.8")
    evaluate(registry, 2, 0.8, data_set=OTHER_DATA)
    move(registry, 2, 1)


def test_a_deleted_version_is_nothing_to_compare_with(registry: Registry) -> None:
    for _ in range(3):
        published(registry)
    protect(registry, metrics={"accuracy": {"max_drop": 0.002}})
    for number in (1, 2):
        evaluate(registry, number, 0.8)
    move(registry, 1, None)
    move(registry, 2, 1)
    registry.services.forced_deletion.delete(MODEL, 2, by=ADMIN, reason="leaked weights", keep_shared=True)
    evaluate(registry, 3, 0.5)
    assert check(registry, 3).passed, "what is deleted has no evaluations any more"
    move(registry, 3, None)
