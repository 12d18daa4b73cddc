from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.performance.metrics import METRICS, Threshold
from pt2hub.domain.tokens import Actor
from pt2hub.errors import Forbidden, InvalidInput, NotFound, PolicyChanged, Pt2hubError, UnknownMetric
from pt2hub.server.db import engine as engines
from pt2hub.server.db.stores.promotion.policies import PolicyStore
from support.gated import replicated, version
from support.registry import V4

if TYPE_CHECKING:
    from pt2hub.wire.performance import PolicyView
    from support.registry import Registry

MODEL = "vision/resnet18"
CHECK = {"alias": "prod", "metric": "latency_p50", "max_worse": 0.05}
WHOLE = {**CHECK, "target": None, "batch": None, "missing": "refuse"}
THREADS = 8


def put(registry: Registry, document: dict[str, Any], revision: int = 0, by: str = "ada") -> PolicyView:
    return registry.services.policies.put(MODEL, document, revision=revision, by=Actor(by, admin=True))


def test_a_model_without_a_policy_demands_nothing(registry: Registry) -> None:
    registry.submit()
    view = registry.services.policies.policy(MODEL)
    assert (view.revision, view.document, view.by, view.at) == (0, {"checks": [], "metrics": {}}, None, None)
    with pytest.raises(NotFound, match=r"Model .* not found"):
        registry.services.policies.policy("vision/none")
    with pytest.raises(NotFound, match=r"Model .* not found"):
        registry.services.policies.put("vision/none", {}, revision=0, by=Actor("ada", admin=True))


def test_only_an_admins_token_changes_a_policy(registry: Registry) -> None:
    registry.submit()
    with pytest.raises(
        Forbidden, match='the token "ci" is not an admin token for vision/resnet18 and cannot change a policy'
    ):
        registry.services.policies.put(MODEL, {"checks": [CHECK]}, revision=0, by=Actor("ci"))
    assert registry.services.policies.policy(MODEL).revision == 0


def test_a_policy_is_kept_whole_and_counted_with_who_changed_it(registry: Registry) -> None:
    registry.submit()
    first = put(registry, {"checks": [CHECK]})
    assert (first.revision, first.by, first.document) == (1, "ada", {"checks": [WHOLE], "metrics": {}})
    rules = {"latency_p50": {"min_effect": 0.02}, "tokens_per_s": {"better": "higher"}}
    second = put(registry, {"metrics": rules}, 1, by="ci")
    assert (second.revision, second.by, second.document) == (2, "ci", {"checks": [], "metrics": rules})
    assert second.at > str(first.at)
    assert registry.services.policies.policy(MODEL) == second


def test_a_change_of_another_revision_tells_who_changed_it_and_when(registry: Registry) -> None:
    registry.submit()
    with pytest.raises(PolicyChanged, match="is at revision 0, not 3"):
        put(registry, {}, 3)
    won = put(registry, {"checks": [CHECK]})
    with pytest.raises(PolicyChanged, match="is at revision 1, not 0") as caught:
        put(registry, {}, 0, by="ci")
    winner = {"revision": 1, "by": "ada", "at": won.at}
    assert caught.value.context == {"model": MODEL, "expected": 0, "winner": winner}
    assert str(won.at)[:19] in caught.value.message
    assert put(registry, {"checks": [CHECK]}) == won  # the same change again, as of who lost the answer


@pytest.mark.parametrize("revision", [0, 1], ids=["made", "changed"])
def test_of_many_that_change_a_policy_at_once_one_wins(registry: Registry, revision: int) -> None:
    registry.submit()
    if revision:
        put(registry, {})
    together = Barrier(THREADS)

    def attempt(number: int) -> PolicyView | Pt2hubError:
        together.wait()
        try:
            return put(registry, {"checks": [{**CHECK, "batch": number + 1}]}, revision, by=f"token {number}")
        except Pt2hubError as exc:
            return exc

    with ThreadPoolExecutor(THREADS) as pool:
        outcomes = list(pool.map(attempt, range(THREADS)))
    losers = [item for item in outcomes if isinstance(item, PolicyChanged)]
    (winner,) = [item for item in outcomes if item not in losers]
    assert not isinstance(winner, Pt2hubError)
    assert {item.context["winner"]["by"] for item in losers} == {winner.by}
    assert registry.services.policies.policy(MODEL) == winner


@pytest.mark.parametrize(
    ("document", "path", "words"),
    [
        ({"checks": [{**CHECK, "max_worse": "5%"}]}, "checks[0].max_worse", "must be a number"),
        ({"checks": [{**CHECK, "max_worse": 11}]}, "checks[0].max_worse", "out of range"),
        ({"checks": [{**CHECK, "max_worse": True}]}, "checks[0].max_worse", "must be a number"),
        ({"checks": [{**CHECK, "batch": 0}]}, "checks[0].batch", "out of range"),
        ({"checks": [{**CHECK, "batch": 2**40}]}, "checks[0].batch", "out of range"),
        ({"checks": [{**CHECK, "alias": "3"}]}, "checks[0].alias", "invalid format"),
        ({"checks": [{**CHECK, "target": "cpu"}]}, "checks[0].target", "unknown target"),
        ({"checks": [{**CHECK, "missing": "skip"}]}, "checks[0].missing", "unknown value"),
        ({"checks": [{"metric": "latency_p50"}]}, "checks[0].max_worse", "missing"),
        ({"checks": [CHECK, {**CHECK, "max_worse": 0.1}]}, "checks[1]", r"checks\[0\] is about the same"),
        ({"checks": [{**CHECK, "metric": "speedup"}]}, "checks[0].metric", "checks compare versions"),
        ({"checks": [CHECK] * 101}, "checks", "too many"),
        ({"check": []}, "check", "unknown field"),
        ({"metrics": {"latency_p50": {"better": "higher"}}}, "metrics.latency_p50.better", "lower is better"),
        ({"metrics": {"latency_p50": {"min_effect": 0}}}, "metrics.latency_p50.min_effect", "out of range"),
        ({"metrics": {"latency_p50": {"confidence": 1}}}, "metrics.latency_p50.confidence", "out of range"),
        ({"metrics": {"A b": {"better": "lower"}}}, "metrics.A b", "invalid format"),
    ],
)
def test_what_is_wrong_with_a_policy_is_said_by_its_place(
    registry: Registry, document: dict[str, Any], path: str, words: str
) -> None:
    registry.submit()
    with pytest.raises(InvalidInput, match=words) as caught:
        put(registry, document)
    assert [item.path for item in caught.value.details] == [path]
    assert caught.value.hint
    assert registry.services.policies.policy(MODEL).revision == 0


def test_a_metric_that_nobody_knows_is_refused_with_those_it_may_mean(registry: Registry) -> None:
    registry.submit()
    with pytest.raises(UnknownMetric) as caught:
        put(registry, {"checks": [{**CHECK, "metric": "latency_p5"}], "metrics": {"trhoughput": {}}})
    by_path = {item.path: item.allowed for item in caught.value.details}
    assert "latency_p50" in str(by_path["checks[0].metric"])
    assert "throughput" in str(by_path["metrics.trhoughput"])


def test_a_metric_of_ones_own_needs_a_direction_before_it_can_be_a_gate(registry: Registry) -> None:
    version(registry, replicated("tokens_per_s", 90.0, "1/s"))
    check = {"metric": "tokens_per_s", "max_worse": 0.1}
    with pytest.raises(InvalidInput, match="tokens_per_s has no better direction"):
        put(registry, {"checks": [check]})
    rules = {"tokens_per_s": {"better": "higher"}, "joules": {"better": "lower"}}
    checks = [check, {"metric": "joules", "max_worse": 0.1}]  # one that will only be reported
    assert put(registry, {"checks": checks, "metrics": rules}).revision == 1


def test_thresholds_are_the_defaults_with_what_the_policy_says(registry: Registry) -> None:
    registry.submit()
    rules = {"latency_p50": {"min_effect": 0.02}, "tokens_per_s": {"better": "higher", "confidence": 0.9}}
    put(registry, {"metrics": rules})
    ((model_id,),) = registry.sql("SELECT id FROM models")
    engine = engines.create(registry.database_url)
    with engines.Sessions(engine).begin() as session:
        found = PolicyStore(session).thresholds(model_id)
        assert PolicyStore(session).thresholds(model_id + 1).keys() == METRICS.keys()
    engine.dispose()
    assert found["latency_p50"] == Threshold("lower", 0.02, 0.99)
    assert found["tokens_per_s"] == Threshold("higher", 0.05, 0.9)
    assert found["throughput"] == Threshold("higher", METRICS["throughput"].min_effect)


def test_targets_are_checked_by_form_and_not_by_who_offers_them_now(registry: Registry) -> None:
    registry.submit(targets=[V4])
    later = "torch2.14-cu130-sm100"
    assert put(registry, {"checks": [{**CHECK, "target": later}]}).document["checks"][0]["target"] == later
