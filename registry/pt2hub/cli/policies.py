"""`pt2hub policy`: what a model's aliases demand of the versions they move to."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  # typer reads annotations when it runs
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer

from pt2hub.cli import panels
from pt2hub.cli.output import AsJson, emit
from pt2hub.cli.words import NOTHING, when

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from pt2hub.client.client import Client
    from pt2hub.wire.performance import PolicyView


def register(app: typer.Typer) -> None:
    """Adds the command."""
    panels.add(
        app,
        policy,
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
        typer.Option("--set", metavar="FILE", help="Make this file, YAML or JSON, the model's whole policy."),
    ] = None,
    expect: Annotated[
        int | None,
        typer.Option(min=0, help="Set it only if it is at this revision, 0 for a first one; for scripts."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show or set what aliases demand of the version they move to.

    A policy is a file such as `gates: [{alias: prod, metric: latency_p50, max_worse: 0.05}]`.
    A gate without an alias, a target or a batch is for every one.
    """
    from pt2hub.cli.references import model_name
    from pt2hub.client.client import Client

    if expect is not None and file is None:
        raise click.UsageError("--expect belongs to --set FILE.")
    name = model_name(model)
    with Client() as client:
        if file is None:
            view, what = client.policy(name), "is"
        else:
            before = client.policy(name).revision if expect is None else expect
            view = _set(client, name, file, before)
            what = "is now" if view.revision != before else "was that already, and is unchanged"
    emit(view, lambda out: _print(out, view, what), as_json=as_json)


def _set(client: Client, model: str, file: Path, expect: int) -> PolicyView:
    from pt2hub.cli.places import in_file
    from pt2hub.errors import UsageError

    try:
        return client.set_policy(model, file, expect)
    except UsageError as exc:
        raise in_file(exc, file) from exc


def _print(out: Console, view: PolicyView, what: str) -> None:
    if not view.revision:
        out.print(f"{view.model} has no policy: its aliases move to any version.", markup=False)
        out.print(f"  Set one: pt2hub policy {view.model} --set policy.yaml", markup=False)
        return
    made = f"by {view.by}, {when(view.at)}"
    out.print(f"The policy of {view.model} {what} at revision {view.revision} ({made})", markup=False)
    _print_gates(out, view)
    _print_metrics(out, view.document.get("metrics") or {})


def _print_gates(out: Console, view: PolicyView) -> None:
    from pt2hub.cli.tables import print_table

    gates = view.document.get("gates") or []
    if not gates:
        out.print("It has no gates: aliases move to any version.", markup=False)
        return
    rows = [
        (
            gate.get("alias") or "every",
            gate["metric"],
            gate.get("target") or "every",
            str(gate.get("batch") or "every"),
            f"{100 * gate['max_worse']:.4g} %",
            "passes" if gate.get("missing") == "pass" else "is refused",
        )
        for gate in gates
    ]
    print_table(out, ("ALIAS", "METRIC", "TARGET", "BATCH", "AT MOST WORSE", "UNMEASURED"), rows)


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
        out.print("\nWhen a change counts, where it is not as pt2hub has it:", markup=False)
        print_table(out, ("METRIC", "BETTER", "FROM", "SURE TO"), rows)


def _share(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:.4g} %"
