"""`pt2hub host` and `pt2hub check`: this machine, and which artifacts of a version run on it."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  # typer reads annotations when it runs
from typing import TYPE_CHECKING, Annotated

import typer

from pt2hub.cli import panels
from pt2hub.cli.output import emit
from pt2hub.cli.references import Reference  # noqa: TC001  # typer reads annotations when it runs
from pt2hub.domain.codec import encode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from pt2hub.domain.compatibility.hosts import Host
    from pt2hub.wire.host_checks import HostCheck

_FAILED = 1
_HINT = "Pass what `pt2hub host --json` printed on that machine."


@panels.command(panels.USING, "pt2hub host", "pt2hub host --json")
def host() -> None:
    """Describe this machine, as far as artifacts depend on it.

    With --json it prints what `pt2hub check` sends to the server, which does not store it.
    """
    from pt2hub.client.machine.host import whole_host

    described = whole_host()
    emit(described.as_document(), lambda out: _print_host(out, described))


@panels.command(
    panels.USING, "pt2hub check vision/resnet18@prod", "pt2hub check vision/resnet18@prod --host host.json"
)
def check(
    reference: Reference,
    *,
    host: Annotated[
        Path | None,
        typer.Option(help="A file with the description of another machine, from `pt2hub host --json` there."),
    ] = None,
) -> None:
    """Check which artifacts of a version run on a machine.

    Nothing is downloaded. The exit code is 0 if one is compatible or degraded, and 1 if none runs.
    """
    from pt2hub.client.client import Client

    described = _read_host(host) if host else None
    with Client() as client:
        found = client.artifacts.check(reference, described)
    emit(encode(found) | {"build_command": found.build_command}, lambda out: _print_check(out, found, host))
    if found.selected is None:
        raise typer.Exit(_FAILED)


def _read_host(path: Path) -> Host:
    from pt2hub.client.documents import read_document
    from pt2hub.domain.compatibility.hosts import parse_host

    return parse_host(read_document(path, "description of a machine", hint=_HINT), where=str(path))


def _print_host(out: Console, described: Host) -> None:
    from pt2hub.cli.tables import print_fields

    out.print(f"{described.os} {described.machine}", style="bold")
    print_fields(out, list(_fields(described)))


def _fields(described: Host) -> Iterator[tuple[str, str]]:
    from pt2hub.domain.targets import cpu_level, flags_of_level
    from pt2hub.rendering.quantities import format_bytes, format_count

    level = cpu_level(described.cpu_flags)
    more = sorted(described.cpu_flags - (flags_of_level(level) if level else frozenset()))
    beyond = [flag for flag in more if flag.startswith(("avx", "amx", "vaes", "gfni"))]
    yield "cpu", " ".join((level or "unknown", *(f"+{flag}" for flag in beyond)))
    yield "libc", f"glibc {described.glibc}" if described.glibc else "unknown"
    yield "libstdc++", f"GLIBCXX {described.glibcxx}" if described.glibcxx else "unknown"
    functions = format_count(len(described.aoti_symbols or ()), "function")
    yield "torch", f"{described.torch}, {functions} for compiled code" if described.torch else "not installed"
    yield "cuda", described.cuda or ""
    yield "gpu", described.sm or ""
    yield "driver", " for CUDA ".join(filter(None, (described.driver, described.driver_cuda)))
    yield (
        "shared memory",
        f"{format_bytes(described.shared_memory_bytes)} per block" if described.shared_memory_bytes else "",
    )
    libraries = described.operator_libraries or {}
    yield "operator libraries", ", ".join(f"{name} {version}" for name, version in sorted(libraries.items()))
    yield "target", described.native_target("cuda") or "none: torch is not installed, or the CPU is unknown"


def _print_check(out: Console, found: HostCheck, host: Path | None) -> None:
    from pt2hub.cli.tables import print_table
    from pt2hub.rendering.host_checks import conclude

    out.print(f"{found.model}@{found.number} on {host or 'this machine'}", style="bold")
    rows = [(item.target, item.state, item.reasons or "") for item in found.artifacts]
    print_table(out, ("TARGET", "STATE", "REASON"), rows)
    out.print(*conclude(found), sep="\n")
