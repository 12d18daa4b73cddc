from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.performance import METRICS, Threshold
from pt2hub.domain.tokens import Actor
from pt2hub.errors import Forbidden, InvalidInput, NotFound, PolicyChanged, Pt2hubError, UnknownMetric
from pt2hub.server.db import engine as engines
from pt2hub.server.db.stores.policies import PolicyStore
from support.gated import replicated, version
from support.registry import V4

if TYPE_CHECKING:
    from pt2hub.wire.performance import PolicyView
    from support.registry import Registry

MODEL = "vision/resnet18"
GATE = {"alias": "prod", "metric": "latency_p50", "max_worse": 0.05}
WHOLE = {**GATE, "target": None, "batch": None, "missing": "refuse"}
THREADS = 8


def put(registry: Registry, document: dict[str, Any], revision: int = 0, by: str = "ada") -> PolicyView:
    return registry.services.policies.put(MODEL, document, revision=revision, by=Actor(by, admin=True))


def test_a_model_without_a_policy_demands_nothing(registry: Registry) -> None:
    registry.submit()
    view = registry.services.policies.policy(MODEL)
    assert (view.revision, view.document, view.by, view.at) == (0, {"gates": [], "metrics": {}}, None, None)
    with pytest.raises(NotFound, match="There is no model"):
        registry.services.policies.policy("vision/none")
    with pytest.raises(NotFound, match="There is no model"):
        registry.services.policies.put("vision/none", {}, revision=0, by=Actor("ada", admin=True))


def test_only_an_admins_token_changes_a_policy(registry: Registry) -> None:
    registry.submit()
    with pytest.raises(Forbidden, match='The token "ci" is not of an admin: it may not change a policy'):
        registry.services.policies.put(MODEL, {"gates": [GATE]}, revision=0, by=Actor("ci"))
    assert registry.services.policies.policy(MODEL).revision == 0


def test_a_policy_is_kept_whole_and_counted_with_who_changed_it(registry: Registry) -> None:
    registry.submit()
    first = put(registry, {"gates": [GATE]})
    assert (first.revision, first.by, first.document) == (1, "ada", {"gates": [WHOLE], "metrics": {}})
    rules = {"latency_p50": {"min_effect": 0.02}, "tokens_per_s": {"better": "higher"}}
    second = put(registry, {"metrics": rules}, 1, by="ci")
    assert (second.revision, second.by, second.document) == (2, "ci", {"gates": [], "metrics": rules})
    assert second.at > str(first.at)
    assert registry.services.policies.policy(MODEL) == second


def test_a_change_of_another_revision_tells_who_changed_it_and_when(registry: Registry) -> None:
    registry.submit()
    with pytest.raises(PolicyChanged, match="is at revision 0, not 3"):
        put(registry, {}, 3)
    won = put(registry, {"gates": [GATE]})
    with pytest.raises(PolicyChanged, match="is at revision 1, not 0") as caught:
        put(registry, {}, 0, by="ci")
    winner = {"revision": 1, "by": "ada", "at": won.at}
    assert caught.value.context == {"model": MODEL, "expected": 0, "winner": winner}
    assert str(won.at)[:19] in caught.value.message
    assert put(registry, {"gates": [GATE]}) == won  # the same change again, as of who lost the answer


@pytest.mark.parametrize("revision", [0, 1], ids=["made", "changed"])
def test_of_many_that_change_a_policy_at_once_one_wins(registry: Registry, revision: int) -> None:
    registry.submit()
    if revision:
        put(registry, {})
    together = Barrier(THREADS)

    def attempt(number: int) -> PolicyView | Pt2hubError:
        together.wait()
        try:
            return put(registry, {"gates": [{**GATE, "batch": number + 1}]}, revision, by=f"token {number}")
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
        ({"gates": [{**GATE, "max_worse": "5%"}]}, "gates[0].max_worse", "a number belongs here"),
        ({"gates": [{**GATE, "max_worse": 11}]}, "gates[0].max_worse", "out of range"),
        ({"gates": [{**GATE, "max_worse": True}]}, "gates[0].max_worse", "a number belongs here"),
        ({"gates": [{**GATE, "batch": 0}]}, "gates[0].batch", "out of range"),
        ({"gates": [{**GATE, "batch": 2**40}]}, "gates[0].batch", "out of range"),
        ({"gates": [{**GATE, "alias": "3"}]}, "gates[0].alias", "another form"),
        ({"gates": [{**GATE, "target": "cpu"}]}, "gates[0].target", "there is no such target"),
        ({"gates": [{**GATE, "missing": "skip"}]}, "gates[0].missing", "no such value"),
        ({"gates": [{"metric": "latency_p50"}]}, "gates[0].max_worse", "missing"),
        ({"gates": [GATE, {**GATE, "max_worse": 0.1}]}, "gates[1]", r"gates\[0\] is about the same"),
        ({"gates": [{**GATE, "metric": "speedup"}]}, "gates[0].metric", "a gate compares versions"),
        ({"gates": [GATE] * 101}, "gates", "too many"),
        ({"gate": []}, "gate", "no such field"),
        ({"metrics": {"latency_p50": {"better": "higher"}}}, "metrics.latency_p50.better", "lower is better"),
        ({"metrics": {"latency_p50": {"min_effect": 0}}}, "metrics.latency_p50.min_effect", "out of range"),
        ({"metrics": {"latency_p50": {"confidence": 1}}}, "metrics.latency_p50.confidence", "out of range"),
        ({"metrics": {"A b": {"better": "lower"}}}, "metrics.A b", "another form"),
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
        put(registry, {"gates": [{**GATE, "metric": "latency_p5"}], "metrics": {"trhoughput": {}}})
    by_path = {item.path: item.allowed for item in caught.value.details}
    assert "latency_p50" in str(by_path["gates[0].metric"])
    assert "throughput" in str(by_path["metrics.trhoughput"])


def test_a_metric_of_ones_own_needs_a_direction_before_it_can_be_a_gate(registry: Registry) -> None:
    version(registry, replicated("tokens_per_s", 90.0, "1/s"))
    gate = {"metric": "tokens_per_s", "max_worse": 0.1}
    with pytest.raises(InvalidInput, match="nobody has said which way of tokens_per_s is better"):
        put(registry, {"gates": [gate]})
    rules = {"tokens_per_s": {"better": "higher"}, "joules": {"better": "lower"}}
    gates = [gate, {"metric": "joules", "max_worse": 0.1}]  # one that will only be reported
    assert put(registry, {"gates": gates, "metrics": rules}).revision == 1


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
    assert put(registry, {"gates": [{**GATE, "target": later}]}).document["gates"][0]["target"] == later
