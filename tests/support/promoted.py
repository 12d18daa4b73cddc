"""Versions and policies for tests of protected aliases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pt2hub.domain.tokens import Actor
from support.registry import ENVIRONMENT, V4

if TYPE_CHECKING:
    from pt2hub.domain.digests import Digest
    from pt2hub.wire.responses import AliasView
    from support.registry import Registry

MODEL = "vision/resnet18"
ADMIN = Actor("root", admin=True)
PROVEN: dict[str, Any] = {
    "result": "passed",
    "comparisons": [{"point": "example.0", "output": 0, "error": 1e-6, "allowed": 0.01, "signal": 1.0}],
    "no_power": [],
}
"""A verification report that could have failed."""


def published(registry: Registry, *, verification: dict[str, Any] = PROVEN) -> Digest:
    """A further version for one target, with an artifact that was verified so."""
    seed = registry.sql("SELECT count(*) FROM versions")[0][0]
    view = registry.submit(source={"factory": "torchvision.models:resnet18", "seed": seed})
    return registry.published(view, code=b"code %d" % seed, key=f"key {seed}", verification=verification)


def protect(registry: Registry, alias: str = "prod", **requirements: Any) -> None:
    """Protects an alias; accuracy is a metric of the model's own."""
    policies = registry.services.policies
    document = {"metrics": {"accuracy": {"better": "higher"}}, "protected": {alias: requirements}}
    policies.put(MODEL, document, revision=policies.policy(MODEL).revision, by=ADMIN)


def move(
    registry: Registry, number: int, expected: int | None, alias: str = "prod", by: str = "ci"
) -> AliasView:
    """Moves an alias."""
    return registry.services.aliases.move(
        MODEL, alias, number, expected=expected, reason="release", by=Actor(by)
    )


def record_pulls(registry: Registry, days: int = 365) -> None:
    """Lets pulls have been recorded without a gap for so many days."""
    registry.services.retention.note_running()
    registry.sql(
        "UPDATE server_settings SET value = CAST(now() - make_interval(days => %s) AS text) WHERE name = 'pulls_recorded_since'",
        days,
    )


def let_pass(registry: Registry, hours: float) -> None:
    """Makes every move so much older."""
    registry.sql("UPDATE alias_moves SET at = at - make_interval(secs => %s)", hours * 3600)


def report_accuracy(
    registry: Registry, number: int, value: float, *, by: str = "eval", target: str = V4, unit: str = "1"
) -> None:
    """Reports an evaluation's accuracy of a version."""
    key = f"{number} {value} {registry.sql('SELECT count(*) FROM measurements')[0][0]}"
    machine = {"cpu_model": "EPYC", "cores": 2, "torch": ENVIRONMENT.torch}
    item = {
        "key": key,
        "artifact": f"{MODEL}@{number}",
        "target": target,
        "metric": "accuracy",
        "value": value,
        "unit": unit,
        "environment": machine,
    }
    registry.services.reports.report({"measurements": [item]}, by=Actor(by))
