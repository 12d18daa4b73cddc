"""`pt2hub evaluations`: how good a model's versions are on their users' data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pt2hub.cli import panels
from pt2hub.cli.lists import Limit  # noqa: TC001  # typer reads annotations when it runs
from pt2hub.cli.output import emit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from pt2hub.wire.evaluations import EvaluationView


@panels.command(
    panels.READING,
    "pt2hub evaluations vision/resnet18",
    "pt2hub evaluations vision/resnet18 accuracy --data-set sha256:<digest>",
)
def evaluations(
    model: Annotated[str, typer.Argument(help="team/name.")],
    metric: Annotated[str | None, typer.Argument(help="Only by this metric, such as accuracy.")] = None,
    *,
    data_set: Annotated[
        str | None, typer.Option(help="Only on this data set: sha256:..., or name@sha256:...")
    ] = None,
    limit: Limit = 20,
) -> None:
    """List evaluations of a model's versions on your own data.

    The newest report comes first.
    To report some: pt2hub report. To compare two versions: pt2hub compare.
    """
    from pt2hub.cli.references import model_name
    from pt2hub.client.client import Client

    with Client() as client:
        found = client.performance.evaluations(model_name(model), metric, data_set=data_set, limit=limit + 1)
    shown, more = found[:limit], len(found) > limit
    emit({"evaluations": shown, "more": more}, lambda out: _print(out, shown, more=more))


def _print(out: Console, found: Sequence[EvaluationView], *, more: bool) -> None:
    from pt2hub.cli.tables import print_table
    from pt2hub.rendering.evaluations import data_text, value_text
    from pt2hub.rendering.times import format_local_time

    rows = [
        (
            f"{item.model}@{item.number}",
            item.metric,
            value_text(item),
            f"{item.count:,}",
            data_text(item.data_digest, item.data_set),
            item.reporter,
            format_local_time(item.measured_at),
        )
        for item in found
    ]
    headings = ("VERSION", "METRIC", "VALUE", "COUNT", "DATA SET", "REPORTER", "AT")
    print_table(out, headings, rows, empty="No evaluations.", more=more)
