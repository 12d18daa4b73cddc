"""What models' owners demand of performance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pt2hub.domain.names import parse_model_name
from pt2hub.domain.performance import METRICS
from pt2hub.errors import Detail, InvalidInput, PolicyChanged, UnknownMetric
from pt2hub.server.db.stores.aliases import AliasStore
from pt2hub.server.db.stores.policies import PolicyStore, StoredPolicy
from pt2hub.server.db.stores.versions import VersionStore
from pt2hub.server.services import missing
from pt2hub.server.services.access import check_admin
from pt2hub.server.services.near import near_words
from pt2hub.server.services.policy_spec import PolicySpec, parse_policy
from pt2hub.wire.performance import PolicyView

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from sqlalchemy.orm import Session

    from pt2hub.domain.tokens import Actor
    from pt2hub.server.db.engine import Sessions

_HINT = (
    "A metric of your own is made known by a report of it, or by the policy: "
    '"metrics": {"NAME": {"better": "lower"}}.'
)
_EXAMPLES = 4
_BESIDE = "speedup"


class PolicyService:
    """Policies of models."""

    def __init__(self, sessions: Sessions) -> None:
        """Is built by the container."""
        self._sessions = sessions

    def policy(self, model: str) -> PolicyView:
        """The policy of a model; revision 0, which demands nothing, where it never had one.

        Raises:
            InvalidInput: The text is no model's name.
            NotFound: There is no such model.
        """
        with self._sessions.begin() as session:
            return _view(model, PolicyStore(session).one(_model(session, model)))

    def put(self, model: str, document: Mapping[str, Any], *, revision: int, by: Actor) -> PolicyView:
        """Changes the policy of a model if it is as the caller believes; the same again changes nothing, the revision too.

        An alias that moves at the same time moves by the old policy before this returns, or by the new one after.

        Args:
            model: The model's name.
            document: The whole policy, as `policy_spec.PolicySpec` reads it.
            revision: The one that it is at as far as the caller knows, 0 where there is none.
            by: Who.

        Raises:
            InvalidInput: A field is wrong.
            UnknownMetric: Neither pt2hub nor the model knows a metric.
            NotFound: There is no such model.
            PolicyChanged: It is at another revision; the error tells who changed it and when.
            Forbidden: It is no admin's token: whoever may weaken a gate need not force a move past it.
        """
        check_admin(by, doing="change a policy", where="policy")
        wanted = parse_policy(document)
        with self._sessions.begin() as session:
            model_id, store = _model(session, model), PolicyStore(session)
            _check(wanted, store.units(model_id))
            AliasStore(session).hold_all(model_id)
            there = store.one(model_id)
            if there and (there.revision, there.document) == (revision, wanted.document()):
                return _view(model, there)
            done = store.put(model_id, wanted.document(), revision=revision, by=by.name)
            now = store.one(model_id)
            if not done and not _repeated(now, wanted, revision, by.name):
                raise _lost(model, now, revision)
            return _view(model, now)


def _model(session: Session, name: str) -> int:
    model_id = VersionStore(session).model_id(parse_model_name(name))
    if model_id is None:
        raise missing.no_model(session, name)
    return model_id


def _repeated(now: StoredPolicy | None, wanted: PolicySpec, revision: int, by: str) -> bool:
    """Whether the policy is what shall be made of it: a client that lost the answer sends its change again."""
    made = (revision + 1, wanted.document(), by)
    return now is not None and (now.revision, now.document, now.by) == made


def _lost(model: str, now: StoredPolicy | None, revision: int) -> PolicyChanged:
    at = now.revision if now else 0
    did = f': the token "{now.by}" changed it at {now.at[:19]}Z' if now else ""
    return PolicyChanged(
        f"The policy of {model} is at revision {at}, not {revision}{did}",
        where="revision",
        hint=f"Look with `pt2hub policy {model}`; if your change is still right, repeat it expecting {at}.",
        context={
            "model": model,
            "expected": revision,
            "winner": {"revision": now.revision, "by": now.by, "at": now.at} if now else None,
        },
    )


def _check(policy: PolicySpec, known: Collection[str]) -> None:
    """Refuses what no move could ever be judged by.

    Args:
        policy: A policy of the right form.
        known: Metrics that were measured of the model's artifacts.
    """
    unknown = tuple(_unknown(policy, known))
    others = (*_turned(policy), *_repeats(policy), *_not_of_versions(policy, known))
    details = (*unknown, *others)
    if not details:
        return
    cls = InvalidInput if others else UnknownMetric
    hint = _HINT if unknown else "Correct the policy at that place."
    if len(details) == 1:
        raise cls(details[0].message, where=details[0].path, hint=hint, details=details)
    raise cls(f"{len(details)} places of the policy are wrong", where="policy", hint=hint, details=details)


def _unknown(policy: PolicySpec, known: Collection[str]) -> Iterator[Detail]:
    declared = {name for name, rule in policy.metrics.items() if rule.better}
    there = {*METRICS, *known, *declared}
    for name in policy.metrics.keys() - there:
        yield _no_metric(f"metrics.{name}", name, there)
    for index, gate in enumerate(policy.gates):
        if gate.metric not in there:
            yield _no_metric(f"gates[{index}].metric", gate.metric, there)


def _no_metric(path: str, name: str, there: Collection[str]) -> Detail:
    near = near_words(name, there)
    allowed = " or ".join(near) if near else f"such as {', '.join(list(METRICS)[:_EXAMPLES])}"
    return Detail(path, "neither pt2hub nor this model knows that metric", given=name, allowed=allowed)


def _turned(policy: PolicySpec) -> Iterator[Detail]:
    for name, rule in policy.metrics.items():
        known = METRICS.get(name)
        if known and rule.better not in (None, known.better):
            message = f"of {name}, {known.better} is better"
            yield Detail(f"metrics.{name}.better", message, given=rule.better, allowed=known.better)


def _repeats(policy: PolicySpec) -> Iterator[Detail]:
    seen: dict[object, int] = {}
    for index, gate in enumerate(policy.gates):
        first = seen.setdefault(gate.about, index)
        if first != index:
            message = f"gates[{first}] is about the same alias, metric, target and batch"
            yield Detail(f"gates[{index}]", message)


def _not_of_versions(policy: PolicySpec, known: Collection[str]) -> Iterator[Detail]:
    """Gates whose metric is known, and of which no two versions could be told apart for better or worse."""
    directed = {*METRICS, *(name for name, rule in policy.metrics.items() if rule.better)}
    for index, gate in enumerate(policy.gates):
        if gate.metric == _BESIDE:
            message = "it compares an artifact with what ran beside it, and a gate compares versions"
            yield Detail(f"gates[{index}].metric", message, given=_BESIDE, allowed="such as latency_p50")
        elif gate.metric in known and gate.metric not in directed:
            message = f"nobody has said which way of {gate.metric} is better"
            allowed = f'"metrics": {{"{gate.metric}": {{"better": "lower"}}}}, or "higher"'
            yield Detail(f"gates[{index}].metric", message, allowed=allowed)


def _view(model: str, policy: StoredPolicy | None) -> PolicyView:
    if policy is None:
        return PolicyView(model, 0, PolicySpec().document())
    return PolicyView(model, policy.revision, policy.document, policy.by, policy.at)
