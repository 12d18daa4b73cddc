"""`pt2hub history`: how fast a model's versions are, where, and since when."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer

from pt2hub.cli import panels
from pt2hub.cli.output import AsJson, emit
from pt2hub.cli.words import NOTHING, one_line, when

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from pt2hub.client.client import Client
    from pt2hub.rendering.quantities import Scale
    from pt2hub.wire.performance import (
        ChangeView,
        HistoryView,
        PointView,
        SeriesList,
        SeriesSummary,
        SeriesView,
    )
    from pt2hub.wire.shapes import VersionView

_METRIC = "latency_p50"
_SPARKLINE = 60
"""Figures of a sparkline: with its heading it stays on one line."""
_NEWEST = 20
"""Versions that are looked at where there are no figures."""
_SHORT = 19
"""Characters of a shortened digest: `sha256:` and 12 digits."""
_TWO_FIGURES = (
    "Where NOTE and CHANGE differ: side by side, both were timed in one run; from here on, it is the median since then "
    "against the one before; CHANGE is of figures taken at different times."
)
_LAST_NUMBER = 2**31 - 1
_NAMES = {
    "cuda": "CUDA",
    "cores": "cores",
    "cpu_max_mhz": "CPU MHz",
    "gpu_max_mhz": "GPU MHz",
    "gpu_power_limit_w": "GPU W",
}
_ALONE = ("gpu", "cpu_model")
"""Fields that need no name."""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    panels.add(
        app,
        history,
        panels.READING,
        "pt2hub history vision/resnet18",
        "pt2hub history vision/resnet18@prod --metric throughput --batch 16",
        "pt2hub history vision/resnet18 --limit 1000 --csv",
        "pt2hub history vision/resnet18 --list",
    )


def history(  # noqa: PLR0913  # each is an argument or option of the command line
    reference: Annotated[
        str,
        typer.Argument(
            metavar="MODEL[@REF]", help="team/name; a version of it (@3, @prod) is marked in the tables."
        ),
    ],
    *,
    metric: Annotated[
        str | None,
        typer.Option(help=f"What is measured, {_METRIC} unless said; --list lists what there is."),
    ] = None,
    target: Annotated[str | None, typer.Option(help="Only on this target.")] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Only at this batch size.")] = None,
    subject: Annotated[
        str | None,
        typer.Option(help="What ran: artifact unless said, or beside it eager or torch_compile."),
    ] = None,
    environment: Annotated[
        str | None, typer.Option(help="Only in this environment class, sha256: and its first digits.")
    ] = None,
    before: Annotated[
        int | None, typer.Option(min=1, max=_LAST_NUMBER, help="Only versions below this number.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=1000, help="At most so many versions of each series.")
    ] = 20,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, a row for each version.")] = False,
    listing: Annotated[bool, typer.Option("--list", help="List what was measured of the model.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show how a metric moved over a model's versions.

    A table for each series: figures of other targets, batches or machines are never mixed. SPREAD is how far
    repeated runs of a version lie apart, CHANGE is against the version below it in the table; only what NOTE
    flags is more than noise.
    """
    from pt2hub.client.client import Client
    from pt2hub.wire.tabular import history_csv

    if as_csv and (as_json or listing):
        raise click.UsageError("--csv is a form of a history by itself, without --json and --list.")
    chosen: dict[str, Any] = {
        "target": target,
        "batch": batch,
        "subject": subject,
        "environment": environment,
    }
    with Client() as client:
        if listing:
            _list(client, reference, {"metric": metric, **chosen}, as_json=as_json)
            return
        view = client.history(reference, metric or _METRIC, before=before, limit=limit, **chosen)
        version = _named_version(client, reference)
        marked = version.number if version else None
        failed = not view.series and before is None and _all_failed(client, view.model)
    if as_csv:
        sys.stdout.write(history_csv(view))
    else:
        empty = _empty(view.model, before=before, failed=failed)
        absent = _absent(view, version) if version else ""
        emit(
            view,
            lambda out: _print(out, view, {marked: reference} if marked else {}, empty, absent),
            as_json=as_json,
        )


def _list(client: Client, reference: str, chosen: Mapping[str, Any], *, as_json: bool) -> None:
    from pt2hub.domain.names import Reference
    from pt2hub.wire.performance import SeriesList

    model = Reference.parse(reference).model
    everything = client.metrics(model)
    found = SeriesList(tuple(item for item in everything.series if _is_chosen(item, chosen)))
    emit(found, lambda out: _print_list(out, model, found, len(everything.series)), as_json=as_json)


def _is_chosen(item: SeriesSummary, chosen: Mapping[str, Any]) -> bool:
    environment = chosen["environment"] or ""
    fields = ("metric", "target", "batch", "subject")
    return item.class_digest.startswith(environment) and all(
        chosen[name] in (None, getattr(item, name)) for name in fields
    )


def _empty(model: str, *, before: int | None, failed: bool) -> str:
    """What is said where a history has no figures."""
    from pt2hub.rendering.measuring import NO_FIGURES

    if before is not None:
        return f"There are no such figures of versions below {before}."
    if failed:
        return f"No build of its newest versions succeeded, so there are no figures: pt2hub builds {model}"
    return NO_FIGURES.format(model=model)


def _all_failed(client: Client, model: str) -> bool:
    """Whether none of the newest versions has an artifact, nor may have one without somebody's doing."""
    newest = client.versions(model, limit=_NEWEST)
    return bool(newest) and all(item.readiness in ("failed", "cancelled") for item in newest)


def _named_version(client: Client, reference: str) -> VersionView | None:
    """The version that a reference names, None where it names a model alone."""
    from pt2hub.cli.references import version_of

    return version_of(client, reference) if "@" in reference else None


def _absent(view: HistoryView, version: VersionView) -> str:
    """Why a version that was asked for is in none of the tables; empty where it is in one."""
    from pt2hub.rendering.printing import measurement

    if any(point.number == version.number for series in view.series for point in series.points):
        return ""
    states = [(build.target, measurement(build.measurement)) for build in version.builds]
    if waiting := [f"{target}: {state}" for target, state in states if state]:
        return f"Version {version.number} is in no table. " + "; ".join(waiting)
    return f"Version {version.number} is not among these; --before and --limit reach it."


def _print(out: Console, view: HistoryView, marked: Mapping[int, str], empty: str, absent: str) -> None:
    from pt2hub.domain.performance import METRICS

    known = METRICS.get(view.metric)
    title = f"{view.metric} of {view.model}" + (f": {known.text}" if known else "")
    out.print(one_line(title), style="bold", markup=False)
    for series in view.series:
        _print_series(out, series, marked)
    if any(_differs(series) for series in view.series):
        out.print(f"\n{_TWO_FIGURES}", markup=False)
    if not view.series:
        out.print(empty, markup=False)
    if view.more:
        out.print("\nThere are more series; name a --target, a --batch or an --environment.", markup=False)
    if absent:
        out.print(f"\n{one_line(absent)}", markup=False)


def _print_series(out: Console, series: SeriesView, marked: Mapping[int, str]) -> None:
    from pt2hub.cli.tables import print_fields, print_table
    from pt2hub.rendering.quantities import scale_for, sparkline

    line = sparkline([point.value for point in series.points][-_SPARKLINE:])
    out.print(f"\n{_heading(series)}  {line if _shows(line) else ''}".rstrip(), style="bold", markup=False)
    print_fields(out, _circumstances(series))
    scale = scale_for([point.value for point in series.points], series.unit)
    headings = ("VERSION", "VALUE", "SPREAD", "CHANGE", "FIGURES", "MEASURED", "NOTE")
    changes = {
        change.number: change for change in series.changes
    }  # of a version's two the change point comes last
    befores = [None, *series.points[:-1]]
    rows = [
        _row(point, before, scale, _note(series, changes.get(point.number), marked.get(point.number)))
        for point, before in zip(series.points, befores, strict=True)
    ]
    print_table(out, headings, rows[::-1])
    if series.more:
        out.print(f"There are older ones: --before {series.points[0].number}", markup=False)


def _heading(series: SeriesView) -> str:
    parts = (
        series.target,
        f"batch {series.batch}" if series.batch else "",
        "" if series.subject == "artifact" else series.subject,
    )
    return "  ".join(one_line(part) for part in parts if part)


def _circumstances(series: SeriesView) -> list[tuple[str, str]]:
    noise = f"{series.noise:.1%} from version to version is usual" if series.noise is not None else ""
    return [
        ("where", one_line(", ".join(_said(name, value) for name, value in _ordered(series.environment)))),
        ("class", series.class_digest[:_SHORT]),
        ("noise", noise.replace("%", " %")),
        ("better", series.better or "not known: say it in the model's policy (pt2hub policy)"),
    ]


def _ordered(fields: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The fields of an environment, what names the machine first."""
    return sorted(fields.items(), key=lambda item: (item[0] not in _ALONE, item[0]))


def _said(name: str, value: object) -> str:
    if name in _ALONE:
        return str(value)
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return (
        f"{text} {_NAMES[name]}" if name == "cores" else f"{_NAMES.get(name, name.replace('_', ' '))} {text}"
    )


def _row(point: PointView, before: PointView | None, scale: Scale, note: str) -> tuple[str, ...]:
    from pt2hub.rendering.quantities import percent

    spread = (point.high - point.low) / abs(point.value) if point.value else 0.0
    change = percent(point.value / before.value) if before and before.value else NOTHING
    return (
        str(point.number),
        scale.text(point.value),
        f"{spread * 100:.1f} %" if spread else NOTHING,
        change,
        str(point.count),
        when(point.measured_at),
        note or NOTHING,
    )


def _differs(series: SeriesView) -> bool:
    """Whether a note says another change than the column beside it."""
    from pt2hub.rendering.quantities import percent

    values = {point.number: point.value for point in series.points}
    return any(
        min(values[item.before], values[item.number]) > 0
        and percent(values[item.number] / values[item.before]) != percent(item.ratio)
        for item in series.changes
        if item.before in values and item.number in values
    )


def _note(series: SeriesView, change: ChangeView | None, reference: str | None) -> str:
    from pt2hub.rendering.moves import moved

    notes = [f"<- {reference}"] if reference else []
    if change:
        word = "changed" if change.verdict == "same" else change.verdict
        since = "from here on" if change.kind == "change_point" else f"than {change.before}"
        beside = " side by side" if change.method == "paired" else ""
        notes.append(f"{word} {since}{beside} ({moved(change.ratio, series.metric, series.unit)})")
    return "; ".join(notes)


def _print_list(out: Console, model: str, found: SeriesList, many: int) -> None:
    from pt2hub.cli.tables import print_table
    from pt2hub.rendering.measuring import NO_FIGURES

    if many and not found.series:
        out.print(f"None of its {many} series is like that; leave an option out to see more.", markup=False)
        return
    if not found.series:
        out.print(NO_FIGURES.partition(", pt2hub history")[0].format(model=model) + ".", markup=False)
        return
    headings = ("METRIC", "TARGET", "BATCH", "SUBJECT", "ENVIRONMENT", "NEWEST", "VALUE", "LAST", "MEASURED")
    print_table(out, headings, _list_rows(found.series))


def _list_rows(found: Sequence[SeriesSummary]) -> list[tuple[str, ...]]:
    from pt2hub.rendering.quantities import quantity, sparkline

    lines = [sparkline(item.values) for item in found]
    return [
        (
            item.metric,
            item.target,
            str(item.batch or NOTHING),
            item.subject,
            item.class_digest[:_SHORT],
            str(item.newest),
            quantity(item.value, item.unit),
            line if _shows(line) else NOTHING,
            when(item.measured_at),
        )
        for item, line in zip(found, lines, strict=True)
    ]


def _shows(text: str) -> bool:
    """Whether standard output can write a text."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
