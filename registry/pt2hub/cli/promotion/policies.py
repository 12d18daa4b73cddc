"""`pt2hub policy`: shows or sets the promotion checks of a model."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  # typer reads annotations when it runs
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer

from pt2hub.cli import panels
from pt2hub.cli.output import emit
from pt2hub.rendering.quantities import format_share
from pt2hub.rendering.times import NOTHING, format_local_time

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from pt2hub.client.client import Client
    from pt2hub.wire.performance import PolicyView


@panels.command(
    panels.PUBLISHING,
    "pt2hub policy vision/resnet18",
    "pt2hub policy vision/resnet18 --set policy.yaml",
    "pt2hub policy vision/resnet18 --set policy.yaml --expect 3",
)
def policy(
    model: Annotated[str, typer.Argument(help="team/name.")],
    *,
    file: Annotated[
        Path | None,
        typer.Option("--set", metavar="FILE", help="Replace the model's policy with this YAML or JSON file."),
    ] = None,
    expect: Annotated[
        int | None,
        typer.Option(
            min=0, help="Set the policy only if it is at this revision, 0 if there is none; for scripts."
        ),
    ] = None,
) -> None:
    """Show or set the checks that alias moves must pass.

    A policy is a file such as `checks: [{alias: prod, metric: latency_p50, max_worse: 0.05}]`.
    A check without an alias, a target or a batch is for every one.
    `protected: {prod: {ready: true, verified: true}}` protects an alias.
    """
    from pt2hub.cli.references import model_name
    from pt2hub.client.client import Client

    if expect is not None and file is None:
        raise click.UsageError("--expect requires --set FILE.")
    name = model_name(model)
    with Client() as client:
        if file is None:
            view, state = client.policies.get(name), "is"
        else:
            before = client.policies.get(name).revision if expect is None else expect
            view = _set(client, name, file, before)
            state = "is now" if view.revision != before else "is unchanged"
    emit(view, lambda out: _print(out, view, state))


def _set(client: Client, model: str, file: Path, expect: int) -> PolicyView:
    from pt2hub.cli.publishing.source_positions import in_file
    from pt2hub.errors import UsageError

    try:
        return client.policies.set(model, file, expect)
    except UsageError as exc:
        raise in_file(exc, file) from exc


def _print(out: Console, view: PolicyView, state: str) -> None:
    if not view.revision:
        out.print(f"{view.model} has no policy: its aliases move to any version.")
        out.print(f"  To set one: pt2hub policy {view.model} --set policy.yaml")
        return
    author = f"by {view.by}, {format_local_time(view.at)}"
    out.print(f"The policy of {view.model} {state} at revision {view.revision} ({author})")
    _print_checks(out, view)
    _print_protected(out, view)
    _print_metrics(out, view.document.get("metrics") or {})


def _print_checks(out: Console, view: PolicyView) -> None:
    from pt2hub.cli.tables import print_table

    checks = view.document.get("checks") or []
    protected = view.document.get("protected") or {}
    if not checks and not protected:
        out.print("It has no checks: aliases move to any version.")
    if not checks:
        return
    rows = [
        (
            check.get("alias") or "every",
            check["metric"],
            check.get("target") or "every",
            str(check.get("batch") or "every"),
            format_share(check["max_worse"], digits=4),
            "passes" if check.get("missing") == "pass" else "is refused",
        )
        for check in checks
    ]
    print_table(out, ("ALIAS", "METRIC", "TARGET", "BATCH", "MAX WORSE", "UNMEASURED"), rows)


def _print_protected(out: Console, view: PolicyView) -> None:
    from pt2hub.cli.tables import print_table
    from pt2hub.rendering.promotions import protection_rows

    if rows := protection_rows(view.document):
        out.print("\nProtected aliases:")
        print_table(out, ("ALIAS", "CHECK", "NEEDED"), rows)


def _print_metrics(out: Console, metrics: Mapping[str, Mapping[str, Any]]) -> None:
    from pt2hub.cli.tables import print_table

    if metrics:
        rows = [
            (
                name,
                rule.get("better") or NOTHING,
                _share(rule.get("min_effect")),
                _share(rule.get("confidence")),
            )
            for name, rule in sorted(metrics.items())
        ]
        out.print("\nMetrics with settings that differ from the defaults:")
        print_table(out, ("METRIC", "BETTER", "MIN CHANGE", "CONFIDENCE"), rows)


def _share(value: float | None) -> str:
    return NOTHING if value is None else format_share(value, digits=4)
