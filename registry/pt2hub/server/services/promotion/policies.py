"""Policies: the promotion checks and metric thresholds of models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pt2hub.domain.audit import Action
from pt2hub.domain.performance.metrics import METRICS
from pt2hub.errors import Detail, InvalidInput, PolicyChanged, UnknownMetric
from pt2hub.server.db.stores.performance.evaluations import EvaluationStore
from pt2hub.server.db.stores.promotion.aliases import AliasStore
from pt2hub.server.db.stores.promotion.policies import PolicyStore, StoredPolicy
from pt2hub.server.services import not_found
from pt2hub.server.services.access import audit_log
from pt2hub.server.services.access.tokens import check_admin
from pt2hub.server.services.promotion.policy_spec import FORM, PolicySpec, parse_policy
from pt2hub.server.services.publishing.spec_errors import refusal
from pt2hub.server.services.suggestions import suggest_words
from pt2hub.wire.performance import PolicyView

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from pt2hub.domain.tokens import Actor
    from pt2hub.server.db.engine import Sessions

_HINT = (
    "A metric of your own becomes known by reporting it, or in the policy: "
    '"metrics": {"NAME": {"better": "lower"}}.'
)
_EXAMPLES = 4
_BESIDE = "speedup"


class PolicyService:
    """Reads and changes policies of models."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def policy(self, model: str) -> PolicyView:
        """Return the policy of a model; an empty one with revision 0 if it never had one.

        Raises:
            InvalidInput: The name is malformed.
            NotFound: The model does not exist.
        """
        with self._sessions.begin() as session:
            return _view(model, PolicyStore(session).one(not_found.require_model(session, model)))

    def put(self, model: str, document: Mapping[str, Any], *, revision: int, by: Actor) -> PolicyView:
        """Replace a model's policy if it is at the expected revision; an equal policy keeps its revision.

        A concurrent alias move is checked by the old policy before this returns, or by the new one after.

        Args:
            document: The whole policy, as `policy_spec.PolicySpec` reads it.
            revision: The current revision that the caller expects, 0 for none.

        Raises:
            InvalidInput: A field is invalid.
            UnknownMetric: A metric is unknown to pt2hub and to the model.
            NotFound: The model does not exist.
            PolicyChanged: It is at another revision; the error names the last change.
            Forbidden: The actor is not an admin: weakening a check is like forcing a move.
        """
        check_admin(by, model, doing="change a policy", where="policy")
        wanted = parse_policy(document)
        with self._sessions.begin() as session:
            model_id, store = not_found.require_model(session, model), PolicyStore(session)
            _check(wanted, store.units(model_id), EvaluationStore(session).units(model_id))
            AliasStore(session).hold_all(model_id)
            there = store.one(model_id)
            if there and (there.revision, there.document) == (revision, wanted.document()):
                return _view(model, there)
            done = store.put(model_id, wanted.document(), revision=revision, by=by.principal)
            now = store.one(model_id)
            if done:
                audit_log.record(
                    session,
                    by,
                    Action.POLICY_CHANGE,
                    model,
                    models=[model],
                    revision=revision + 1,
                    before=there.document if there else None,
                    after=wanted.document(),
                )
            if not done and not _is_repeated(now, wanted, revision, by.name):
                raise _lost(model, now, revision)
            return _view(model, now)


def _is_repeated(now: StoredPolicy | None, wanted: PolicySpec, revision: int, by: str) -> bool:
    """Return whether the policy already has this change: a client that lost the response repeats its request."""
    made = (revision + 1, wanted.document(), by)
    return now is not None and (now.revision, now.document, now.by) == made


def _lost(model: str, now: StoredPolicy | None, revision: int) -> PolicyChanged:
    at = now.revision if now else 0
    change = f': changed by token "{now.by}" at {now.at[:19]}Z' if now else ""
    return PolicyChanged(
        f"The policy of {model} is at revision {at}, not {revision}{change}",
        where="revision",
        hint=f"See `pt2hub policy {model}`; if your change is still correct, repeat it expecting {at}.",
        context={
            "model": model,
            "expected": revision,
            "winner": {"revision": now.revision, "by": now.by, "at": now.at} if now else None,
        },
    )


def _check(policy: PolicySpec, known: Collection[str], evaluated: Collection[str]) -> None:
    """Refuse a policy whose checks can never be evaluated.

    Args:
        known: Metrics of the model's artifacts, which checks compare.
        evaluated: Metrics that its versions were evaluated by, which protected aliases limit.
    """
    unknown = tuple(_unknown(policy, known, evaluated))
    others = (
        *_reversed_thresholds(policy),
        *_repeats(policy),
        *_not_of_versions(policy, known, evaluated),
        *_unfit_protections(policy),
    )
    details = (*unknown, *others)
    if not details:
        return
    cls = InvalidInput if others else UnknownMetric
    hint = _HINT if unknown else "Correct these fields of the policy."
    raise refusal(cls, details, FORM, hint)


def _unknown(policy: PolicySpec, known: Collection[str], evaluated: Collection[str]) -> Iterator[Detail]:
    declared = {name for name, rule in policy.metrics.items() if rule.better}
    there = {*METRICS, *known, *declared}
    for name in policy.metrics.keys() - there - set(evaluated):
        yield _no_metric(f"metrics.{name}", name, there)
    for index, check in enumerate(policy.checks):
        if check.metric not in there:
            yield _no_metric(f"checks[{index}].metric", check.metric, there)
    for alias, protection in policy.protected.items():
        for name in protection.metrics.keys() - there - set(evaluated):
            yield _no_metric(f"protected.{alias}.metrics.{name}", name, there)


def _no_metric(path: str, name: str, there: Collection[str]) -> Detail:
    suggestions = suggest_words(name, there)
    allowed = " or ".join(suggestions) if suggestions else f"such as {', '.join(list(METRICS)[:_EXAMPLES])}"
    return Detail(path, "unknown metric", given=name, allowed=allowed)


def _reversed_thresholds(policy: PolicySpec) -> Iterator[Detail]:
    for name, rule in policy.metrics.items():
        known = METRICS.get(name)
        if known and rule.better not in (None, known.better):
            message = f"{known.better} is better for {name}"
            yield Detail(f"metrics.{name}.better", message, given=rule.better, allowed=known.better)


def _repeats(policy: PolicySpec) -> Iterator[Detail]:
    seen: dict[object, int] = {}
    for index, check in enumerate(policy.checks):
        first = seen.setdefault(check.about, index)
        if first != index:
            message = f"checks[{first}] is about the same alias, metric, target and batch"
            yield Detail(f"checks[{index}]", message)


def _not_of_versions(
    policy: PolicySpec, known: Collection[str], evaluated: Collection[str]
) -> Iterator[Detail]:
    """Yield the checks whose metric is known, but is not of artifacts, does not compare versions or has no better direction."""
    directed = {*METRICS, *(name for name, rule in policy.metrics.items() if rule.better)}
    for index, check in enumerate(policy.checks):
        if check.metric == _BESIDE:
            message = "speedup compares an artifact with its baseline, but checks compare versions"
            yield Detail(f"checks[{index}].metric", message, given=_BESIDE, allowed="such as latency_p50")
        elif check.metric in evaluated and check.metric not in known:
            message = (
                f"{check.metric} is of versions, and checks compare artifacts; limit it for a protected alias"
            )
            allowed = f'"protected": {{"{check.alias or "prod"}": {{"metrics": {{"{check.metric}": {{"max_drop": 0.002}}}}}}}}'
            yield Detail(f"checks[{index}].metric", message, given=check.metric, allowed=allowed)
        elif check.metric in known and check.metric not in directed:
            message = f"{check.metric} has no better direction"
            allowed = f'"metrics": {{"{check.metric}": {{"better": "lower"}}}}, or "higher"'
            yield Detail(f"checks[{index}].metric", message, allowed=allowed)


def _unfit_protections(policy: PolicySpec) -> Iterator[Detail]:
    """Yield the requirements of protected aliases that no version can meet, or that have another place."""
    for alias, protection in policy.protected.items():
        path = f"protected.{alias}"
        if protection.min_age and protection.min_age.alias == alias:
            message = f"a version cannot be on {alias} before it moves to {alias}"
            yield Detail(
                f"{path}.min_age.alias", message, given=alias, allowed="another alias, such as staging"
            )
        for name in protection.metrics.keys() & METRICS.keys():
            message = f"pt2hub measures {name} itself; limits are for metrics that are only reported"
            allowed = f'"checks": [{{"alias": "{alias}", "metric": "{name}", "max_worse": 0.05}}]'
            yield Detail(f"{path}.metrics.{name}", message, allowed=allowed)


def _view(model: str, policy: StoredPolicy | None) -> PolicyView:
    if policy is None:
        return PolicyView(model, 0, PolicySpec().document())
    return PolicyView(model, policy.revision, policy.document, policy.by, policy.at, policy.principal)
