"""Protected aliases: each required check refuses what it should, says what was found and needed, and lets the rest pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.principals import PrincipalKind
from pt2hub.domain.tokens import Actor
from pt2hub.errors import Forbidden, InvalidInput, PromotionCheckFailed, UnknownMetric
from support.gated import latency, version
from support.promoted import ADMIN, MODEL, PROVEN, let_pass, move, protect, published, report_accuracy
from support.registry import V3, V4

if TYPE_CHECKING:
    from pt2hub.wire.performance import PromotionCheckResult
    from support.registry import Registry


def refused(registry: Registry, number: int, expected: int | None, by: str = "ci") -> PromotionCheckFailed:
    """The refusal of a move of `prod`, which changes nothing and is foretold by the preview."""
    before = registry.sql("SELECT count(*) FROM alias_moves")
    with pytest.raises(PromotionCheckFailed) as caught:
        move(registry, number, expected, by=by)
    assert registry.sql("SELECT count(*) FROM alias_moves") == before
    assert not registry.services.aliases.preview(MODEL, "prod", number, by=Actor(by).principal).allowed
    return caught.value


def check(registry: Registry, number: int, by: str = "ci") -> PromotionCheckResult:
    """The one check of a move of `prod`, as the preview has it."""
    (found,) = registry.services.aliases.preview(MODEL, "prod", number, by=Actor(by).principal).checks
    assert found.found
    assert found.needed
    return found


def test_only_promoters_move_and_remove_a_protected_alias(registry: Registry) -> None:
    published(registry)
    protect(registry, promoters=["release-*", "ada"])
    with pytest.raises(Forbidden, match=r'prod is not created: token "ci" may not move prod') as caught:
        move(registry, 1, None)
    assert (caught.value.where, caught.value.context["refused"][0]["kind"]) == ("policy", "promoter")
    assert (check(registry, 1).found, check(registry, 1).needed) == ('token "ci"', "release-*, ada")
    preview = registry.services.aliases.preview(MODEL, "prod", 1, by=None)
    assert (preview.allowed, preview.protected, preview.before) == (False, True, None)
    assert move(registry, 1, None, by="release-7").number == 1
    aliases = registry.services.aliases
    with pytest.raises(Forbidden, match="prod stays on 1"):
        aliases.remove(MODEL, "prod", expected=1, reason="gone", by=Actor("ci"))
    assert aliases.remove(MODEL, "prod", expected=1, reason="gone", by=Actor("ada")).number is None
    assert move(registry, 1, None, alias="canary").number == 1  # another alias is not protected


def test_a_token_that_is_named_like_a_person_is_no_promoter_by_a_pattern_for_people(
    registry: Registry,
) -> None:
    published(registry)
    protect(registry, promoters=["*@acme.example", "eve@acme.example"])
    with pytest.raises(Forbidden, match=r'token "eve@acme\.example" may not move prod'):
        move(registry, 1, None, by="eve@acme.example")
    eve = Actor("eve@acme.example", kind=PrincipalKind.PERSON, person=1)
    assert registry.services.aliases.preview(MODEL, "prod", 1, by=eve.principal).allowed
    moved = registry.services.aliases.move(MODEL, "prod", 1, expected=None, reason="release", by=eve)
    assert moved.number == 1
    (message,) = registry.services.aliases.explain_last_move(MODEL, "prod")
    assert message.startswith("eve@acme.example may move prod")
    protect(registry, promoters=["*"])
    assert registry.services.aliases.preview(MODEL, "prod", 1, by=Actor("eve@acme.example").principal).allowed


def test_a_measurement_counts_for_a_pattern_for_people_unless_a_token_has_that_name(
    registry: Registry,
) -> None:
    published(registry)
    protect(registry, metrics={"accuracy": {"min": 0.8, "reporters": ["*@acme.example"]}})
    report_accuracy(registry, 1, 0.9, by="eve@acme.example")
    assert check(registry, 1).passed, "only a person has this name"
    registry.services.access.create_token("eve@acme.example")
    assert check(registry, 1).missing


def test_measurements_that_do_not_count_hide_none_that_do(registry: Registry) -> None:
    view = registry.submit(targets=[V4, V3])
    registry.published(view)
    registry.worker("w3", V3)
    claim = registry.services.builds.claim(view.builds[1].id, "w3")
    assert claim is not None
    registry.services.builds.publish(claim, registry.publication(claim, code=b"v3"))
    report_accuracy(registry, 1, 0.1, target=V3)
    registry.sql(
        "INSERT INTO measurements (series_id, number, artifact, environment, source, reporter, key, value, measured_at)"
        " SELECT series_id, number, artifact, environment, source, 'other', n::text, 1, now() + interval '1 hour'"
        " FROM measurements, generate_series(1, 1000) AS n WHERE reporter = 'eval'"
    )
    report_accuracy(registry, 1, 0.9, target=V4)
    registry.sql("UPDATE measurements SET measured_at = now() + interval '2 hours' WHERE value = 0.9")
    protect(registry, metrics={"accuracy": {"min": 0.8, "reporters": ["eval"]}})
    checks = registry.services.aliases.preview(MODEL, "prod", 1, by=None).checks
    assert [(item.target, item.passed) for item in checks] == [(V4, True), (V3, False)]


def test_an_admin_who_is_no_promoter_only_forces_it_and_what_was_overridden_is_kept(
    registry: Registry,
) -> None:
    published(registry, verification={"result": "no_power", "no_power": ["output 0"]})
    protect(registry, promoters=["ada"], verified=True)
    aliases = registry.services.aliases
    with pytest.raises(Forbidden):
        move(registry, 1, None, by="root")
    with pytest.raises(InvalidInput, match="The reason is missing"):
        aliases.force(MODEL, "prod", 1, expected=None, reason=" ", by=ADMIN)
    view = aliases.force(MODEL, "prod", 1, expected=None, reason="outage 12", by=ADMIN)
    assert view.last.forced is not None
    assert [item["kind"] for item in view.last.forced["refused"]] == ["promoter", "verified"]
    assert view.last.forced["count"] == 2
    assert aliases.alias(MODEL, "prod").history[0].forced == view.last.forced


def test_every_target_must_be_ready(registry: Registry) -> None:
    view = registry.submit(targets=[V4, V3])
    registry.published(view)
    protect(registry, ready=True)
    found = check(registry, 1)
    assert (found.kind, found.passed, found.needed) == ("ready", False, "every target ready")
    assert found.found == f"partial ({V4} succeeded, {V3} queued)"
    assert "partial" in refused(registry, 1, None).message
    registry.worker("w3", V3)
    claim = registry.services.builds.claim(view.builds[1].id, "w3")
    assert claim is not None
    registry.services.builds.publish(claim, registry.publication(claim, code=b"v3"))
    assert move(registry, 1, None).number == 1


@pytest.mark.parametrize(
    ("report", "why"),
    [
        ({**PROVEN, "result": "no_power", "no_power": ["output 0: constant"]}, "no power"),
        ({**PROVEN, "no_power": ["output 0: constant"]}, "no power"),
        ({**PROVEN, "comparisons": []}, "compared nothing"),
        ({**PROVEN, "result": "failed"}, "unknown"),
        ({}, "unknown"),
    ],
)
def test_a_verification_that_could_not_have_failed_does_not_count(
    registry: Registry, report: dict[str, Any], why: str
) -> None:
    published(registry, verification=report)
    protect(registry, verified=True)
    error = refused(registry, 1, None)
    assert "0 of 1 artifacts of version 1 passed a verification that could have failed" in error.message
    assert why in error.message
    published(registry)
    assert check(registry, 2).found == "1 of 1 artifacts"
    assert move(registry, 2, None).number == 2


def test_a_version_must_have_been_on_the_alias_before_for_long_enough_without_a_break(
    registry: Registry,
) -> None:
    for _ in range(2):
        published(registry)
    protect(registry, min_age={"alias": "staging", "hours": 24})
    assert check(registry, 1).found == "never on staging"
    move(registry, 1, None, "staging")
    let_pass(registry, 23)
    found = check(registry, 1)
    assert (found.passed, found.needed) == (False, "1 d 0 h on staging")
    assert found.found.startswith("23 h 0 min on staging, until then from ")
    assert "it needs 1 d 0 h on staging without a break" in refused(registry, 1, None).message
    move(registry, 2, 1, "staging")
    let_pass(registry, 5)
    move(registry, 1, 2, "staging")
    let_pass(registry, 10)
    assert check(registry, 1).found.startswith("23 h 0 min on staging")  # two stays do not add up
    assert check(registry, 2).found == "5 h 0 min on staging"
    let_pass(registry, 15)
    move(registry, 2, 1, "staging")
    assert check(registry, 1).found == "1 d 1 h on staging"  # and it need not be there any more
    assert move(registry, 1, None).number == 1
    assert "5 h 0 min" in refused(registry, 2, 1).message


def test_a_reported_metric_of_ones_own_must_be_within_its_limits(registry: Registry) -> None:
    published(registry)
    protect(registry, metrics={"accuracy": {"min": 0.76, "max": 0.9, "reporters": ["eval*"]}})
    error = refused(registry, 1, None)
    assert "accuracy of version 1 was not reported; it must be at least 0.76 and at most 0.9" in error.message
    assert f"Report accuracy of {MODEL}@1 with `pt2hub report`." in str(error.hint)
    report_accuracy(registry, 1, 0.8, by="ci")
    assert check(registry, 1).found == "not reported by eval*"
    report_accuracy(registry, 1, 0.7599)
    assert check(registry, 1).found == "0.7599, reported by eval"
    refused(registry, 1, None)
    report_accuracy(registry, 1, 95)
    refused(registry, 1, None)
    report_accuracy(registry, 1, 76.2, unit="%")
    assert check(registry, 1).found == "76.2 %, reported by eval"
    refused(registry, 1, None)  # in another unit than the limit
    report_accuracy(registry, 1, 0.761)
    found = check(registry, 1)
    assert (found.passed, found.target, found.path) == (True, V4, "protected.prod.metrics.accuracy")
    assert move(registry, 1, None).number == 1


def test_a_limit_may_name_the_target_else_every_reported_one_counts(registry: Registry) -> None:
    view = registry.submit(targets=[V4, V3])
    for build in view.builds:
        registry.worker(f"w {build.target}", build.target)
        claim = registry.services.builds.claim(build.id, f"w {build.target}")
        assert claim is not None
        registry.services.builds.publish(claim, registry.publication(claim, code=build.target.encode()))
    protect(registry, metrics={"accuracy": {"min": 0.7, "target": V3}})
    report_accuracy(registry, 1, 0.8)
    assert (check(registry, 1).target, check(registry, 1).missing) == (V3, True)
    protect(registry, metrics={"accuracy": {"min": 0.7}})
    assert check(registry, 1).passed
    report_accuracy(registry, 1, 0.6, target=V3)
    checks = registry.services.aliases.preview(MODEL, "prod", 1, by=Actor("ci").principal).checks
    assert {item.target: item.passed for item in checks} == {V3: False, V4: True}
    refused(registry, 1, None)


def test_a_rollback_to_what_the_policy_allowed_needs_nothing_again(registry: Registry) -> None:
    for number in (1, 2):
        published(registry)
        report_accuracy(registry, number, 0.8)
    protect(registry, promoters=["ada"], metrics={"accuracy": {"min": 0.7}})
    move(registry, 1, None, by="ada")
    move(registry, 2, 1, by="ada")
    report_accuracy(registry, 1, 0.1)  # whatever was reported since
    with pytest.raises(Forbidden):
        move(registry, 1, 2, by="ci")
    (_, said) = move(registry, 1, 2, by="ada").notes
    assert said.endswith("it passes because prod was on 1 under this policy before")
    protect(registry, metrics={"accuracy": {"min": 0.75}})
    move(registry, 2, 1)
    assert move(registry, 1, 2).number == 1  # where it was when the policy changed
    move(registry, 2, 1)
    protect(registry, metrics={"accuracy": {"min": 0.76}})
    refused(registry, 1, 2)  # under this policy it never was


def test_protection_and_performance_are_told_together(registry: Registry) -> None:
    version(registry, latency(10.0))
    version(registry, latency(13.0))
    document = {
        "checks": [{"metric": "latency_p50", "max_worse": 0.05}],
        "protected": {"prod": {"ready": True, "verified": True}},
    }
    registry.services.policies.put(MODEL, document, revision=0, by=ADMIN)
    registry.services.aliases.force(MODEL, "prod", 1, expected=None, reason="first", by=ADMIN)
    preview = registry.services.aliases.preview(MODEL, "prod", 2, by=Actor("ci").principal)
    assert [(item.kind, item.passed) for item in preview.checks] == [
        ("ready", True),
        ("verified", False),
        ("performance", False),
    ]
    assert preview.checks[-1].found == "30 % worse (13 ms, was 10 ms)"
    assert preview.checks[-1].needed == "at most 5 % worse"
    assert "2 checks refuse version 2" in refused(registry, 2, 1).message


@pytest.mark.parametrize(
    ("protected", "path", "message"),
    [
        ({"prod": {"verifed": True}}, "protected.prod.verifed", "unknown field"),
        ({"prod": {"metrics": {"acuracy": {"min": 1}}}}, "protected.prod.metrics.acuracy", "unknown metric"),
        (
            {"prod": {"metrics": {"accuracy": {}}}},
            "protected.prod.metrics.accuracy",
            "min, max, max_drop or max_rise is required",
        ),
        (
            {"prod": {"metrics": {"accuracy": {"min": 2, "max": 1}}}},
            "protected.prod.metrics.accuracy.min",
            "min must be at most max",
        ),
        (
            {"prod": {"metrics": {"latency_p50": {"max": 20}}}},
            "protected.prod.metrics.latency_p50",
            "pt2hub measures latency_p50 itself",
        ),
        ({"prod": {"min_age": {"alias": "prod", "hours": 1}}}, "protected.prod.min_age.alias", "before it"),
        ({"prod": {"min_age": {"alias": "staging", "hours": 0}}}, "protected.prod.min_age.hours", "range"),
        (
            {"prod": {"min_age": {"alias": "staging", "hours": "24h"}}},
            "protected.prod.min_age.hours",
            "number",
        ),
        ({"prod": {"promoters": []}}, "protected.prod.promoters", "too few"),
        ({"3": {"ready": True}}, "protected.3", "invalid format"),
    ],
)
def test_what_is_wrong_with_a_protection_is_said_by_its_path(
    registry: Registry, protected: dict[str, Any], path: str, message: str
) -> None:
    registry.submit()
    document = {"protected": protected, "metrics": {"accuracy": {"better": "higher"}}}
    with pytest.raises(InvalidInput) as caught:
        registry.services.policies.put(MODEL, document, revision=0, by=ADMIN)
    assert [item.path for item in caught.value.details] == [path]
    assert message in caught.value.details[0].message
    assert registry.services.policies.policy(MODEL).revision == 0
    if message == "unknown metric":
        assert isinstance(caught.value, UnknownMetric)
        assert "accuracy" in str(caught.value.details[0].allowed)


def test_a_policy_of_a_newer_server_is_not_passed_over(registry: Registry) -> None:
    published(registry)
    protect(registry, ready=True)
    registry.sql("UPDATE policies SET document = jsonb_set(document, '{protected,prod,signed}', 'true')")
    with pytest.raises(Exception, match="requirements that this server does not know"):
        move(registry, 1, None)
    assert move(registry, 1, None, "canary").number == 1
