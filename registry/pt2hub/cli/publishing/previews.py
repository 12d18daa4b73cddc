"""Publish previews: what publishing a spec would do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.cli.output import emit, shows_progress

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rich.console import Console

    from pt2hub.client.client import Client
    from pt2hub.client.publishing.options import SpecOptions
    from pt2hub.wire.previews import PublishPreview, TargetPreview


def show(client: Client, spec: Path, files: SpecOptions, *, next_step: str) -> None:
    """Print what publishing a spec with its files would do.

    Args:
        next_step: The sentence that says how to publish it.

    Raises:
        UsageError: The spec is invalid; the error names file, line and column.
    """
    from pt2hub.cli.publishing.option_errors import in_request
    from pt2hub.errors import UsageError

    try:
        given: SpecOptions = {**files, "progress": shows_progress()}
        found = client.preview(spec, **given)
    except UsageError as exc:
        raise in_request(exc, spec, files) from exc
    emit(found, lambda out: _print(out, found, spec, next_step))


def _print(out: Console, found: PublishPreview, spec: Path, next_step: str) -> None:
    from pt2hub.cli.tables import print_fields, print_table

    out.print(_headline(found, spec), style="bold")
    print_table(out, ("TARGET", "BUILD"), [(item.target, _build(item)) for item in found.targets])
    print_fields(out, list(_fields(found)))
    for note in found.notes:
        out.print(note)
    out.print(f"Nothing was published. {next_step}")


def _headline(found: PublishPreview, spec: Path) -> str:
    version = f"{found.model}@{found.number}"
    if not found.created:
        return f"{spec} is already published as {version}"
    return f"{spec} would become {version}{', the first of a new model' if found.first else ''}"


def _build(item: TargetPreview) -> str:
    if item.state:
        return f"has one: {item.state}"
    ahead = f", behind {item.ahead} queued" if item.ahead else ""
    return f"would be queued{ahead}{': no worker is ready for it' if item.wait else ''}"


def _fields(found: PublishPreview) -> Iterator[tuple[str, str]]:
    from pt2hub.rendering.quantities import format_bytes

    yield "identity", found.identity
    for path, size in found.blobs.items():
        yield path, format_bytes(size)
    yield "replaced settings", ", ".join(found.settings)
    yield "replaced documentation", ", ".join(found.documentation)
    yield "not checked here", ", ".join(found.unread)
