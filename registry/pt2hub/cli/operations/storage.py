"""`pt2hub admin scrub`, `fsck` and `heal`: damage of the storage, for the server's operator."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from pathlib import Path  # noqa: TC003  # typer reads annotations when it runs
from typing import TYPE_CHECKING, Annotated

import typer

from pt2hub.cli import panels
from pt2hub.cli.output import emit, shows_progress
from pt2hub.domain.digests import DIGEST_PATTERN, Digest
from pt2hub.domain.sizes import SIZE_HINT, parse_size
from pt2hub.errors import InvalidInput
from pt2hub.rendering.quantities import format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console

    from pt2hub.domain.damage import HealOutcome, ScrubReport
    from pt2hub.domain.storage_check import StorageCheck
    from pt2hub.server.config import ServerConfig
    from pt2hub.server.services.operations.heal import HealSource

_FOUND = 1
"""Exit code where something is damaged."""


@panels.command(None, "pt2hub admin scrub", "pt2hub admin scrub --all --rate 50MiB")
def scrub(
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Check everything, also what was checked within a week.")
    ] = False,
    rate: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Bytes to read a second, such as 50MiB; no limit if omitted."),
    ] = None,
) -> None:
    """Read stored blobs again, and record which are damaged.

    Servers do so all the time, at PT2HUB_SCRUB_BYTES_PER_S. The exit code is 1 if anything is damaged, also what was
    found before.
    """
    from pt2hub.server.admin import scrub as run

    bytes_per_s = parse_size(rate) if rate else 0
    if bytes_per_s is None:
        raise InvalidInput(f"Invalid rate {rate!r:.80}", where="--rate", hint=SIZE_HINT)
    report = run(_server_config(), everything=everything, bytes_per_s=bytes_per_s, meter=_meter)
    emit(report, lambda out: _print_scrub(out, report))
    if report.damaged or report.known or report.documents:
        raise typer.Exit(_FOUND)


@panels.command(None, "pt2hub admin fsck", "pt2hub admin fsck --json")
def fsck() -> None:
    """Compare the database and the storage in both directions.

    Nothing is changed, and of the storage only the journal is read: `pt2hub admin scrub` reads blobs. Each finding comes with its cure. The exit
    code is 1 if there are any.
    """
    from pt2hub.server.admin import check_storage

    found = check_storage(_server_config())
    emit(found, lambda out: _print_check(out, found))
    if found.counts:
        raise typer.Exit(_FOUND)


@panels.command(
    None,
    "pt2hub admin heal",
    "pt2hub admin heal --from-cache ~/.cache/pt2hub",
    "pt2hub admin heal sha256:9f86d08... --from-server https://mirror.example",
    "pt2hub admin heal --rebuild",
)
def heal(
    digests: Annotated[
        list[str] | None,
        typer.Argument(metavar="[DIGEST...]", help="Blobs to replace; all that are damaged if omitted."),
    ] = None,
    *,
    from_cache: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="Cache of a client that pulled the artifacts; repeat it for more."),
    ] = None,
    from_server: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="Another pt2hub server that has them; PT2HUB_TOKEN is sent to it."),
    ] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Have workers build again what no source has.")
    ] = False,
) -> None:
    """Replace damaged blobs from a cache, another server or a rebuild.

    Without a source, it shows what is damaged, who needs it and what can be done. A rebuild replaces code and weights
    that a build made, if it writes the same bytes; otherwise its build fails and names the digests. The exit code is 1
    if anything stays damaged, also while it is built.
    """
    from pt2hub.server.admin import heal as replace

    asked = [_digest(text) for text in digests or ()]
    sources: list[HealSource] = [*map(_Cache, from_cache or ()), *map(_Server, from_server or ())]
    outcomes = replace(_server_config(), asked, sources, rebuild=rebuild)
    emit({"blobs": outcomes}, lambda out: _print_outcomes(out, outcomes, asked=bool(sources) or rebuild))
    if any(outcome.state == "damaged" for outcome in outcomes):
        raise typer.Exit(_FOUND)


class _Cache:
    """The cache of a client."""

    def __init__(self, directory: Path) -> None:
        from pt2hub.client.blobs.folder import BlobFolder

        if not (directory / "blobs").is_dir():
            raise InvalidInput(
                f"{directory} is not a cache of pt2hub",
                where="--from-cache",
                hint="Name the directory that contains blobs/, such as ~/.cache/pt2hub.",
            )
        self.name = str(directory)
        self._folder = BlobFolder(directory)

    def fetch(self, digest: Digest, folder: Path, models: Sequence[str]) -> Path | None:
        """See `HealSource.fetch`."""
        del folder, models
        path = self._folder.path(digest)
        return path if path.is_file() else None


class _Server:
    """Another pt2hub server."""

    def __init__(self, url: str) -> None:
        from pt2hub.client.client import Client

        self.name = url
        self._client = Client(url=url, token=os.environ.get("PT2HUB_TOKEN") or None)

    def fetch(self, digest: Digest, folder: Path, models: Sequence[str]) -> Path | None:
        """See `HealSource.fetch`."""
        return self._client.blobs.fetch(digest, folder, models=models, progress=shows_progress())


def _server_config() -> ServerConfig:
    from pt2hub.server.config import ServerConfig

    return ServerConfig.from_environ(os.environ)


@contextmanager
def _meter(total: int) -> Iterator[Callable[[int], None]]:
    from pt2hub.client.http.transfers import meter

    with meter("scrubbing", total, shows_progress()) as seen:
        yield seen


def _digest(text: str) -> Digest:
    if not re.fullmatch(DIGEST_PATTERN, text):
        raise InvalidInput(
            f"Invalid digest {text!r:.100}", where="DIGEST", hint="Write sha256: and 64 hexadecimal digits."
        )
    return Digest(text)


def _print_scrub(out: Console, report: ScrubReport) -> None:
    from pt2hub.cli.tables import print_table

    out.print(f"Read {format_count(report.blobs, 'blob')} ({format_bytes(report.bytes)}).")
    if report.restored:
        out.print(f"{format_count(report.restored, 'blob')} that were missing are intact again.")
    rows = [
        (item.kind, item.digest, item.problem.value, str(item.expected_bytes), str(item.found_bytes or ""))
        for item in report.damaged
    ]
    empty = "Nothing else is damaged." if report.known else "Nothing is damaged."
    print_table(out, ("KIND", "DIGEST", "PROBLEM", "BYTES", "FOUND"), rows, empty=empty)
    if report.known:
        verb = "is" if report.known == 1 else "are"
        out.print(
            f"{format_count(report.known, 'blob')} that {verb} known to be damaged {verb} not mended: pt2hub admin heal"
        )
    if rows:
        out.print("They are not served. Replace them: pt2hub admin heal")
    for path, problem in report.documents:
        out.print(f"{path}: {problem}", soft_wrap=True)
    if report.documents:
        out.print(
            "Tombstones that the database has are written again, unless a reindex is due. "
            "For files of the journal: pt2hub admin fsck"
        )


def _print_check(out: Console, found: StorageCheck) -> None:
    from pt2hub.cli.tables import print_table

    out.print(f"Compared {format_count(found.objects, 'object')} with {format_count(found.rows, 'row')}.")
    rows = [(item.kind.value, item.what, item.detail, item.cure) for item in found.findings]
    print_table(out, ("FINDING", "WHAT", "DETAIL", "CURE"), rows, empty="Nothing is wrong.")
    left = sum(found.counts.values()) - len(rows)
    if left:
        out.print(f"{format_count(left, 'more finding')} not listed.")


def _without_repeats(owners: Sequence[str]) -> list[str]:
    """Return owners without versions whose targets are among them."""
    return [name for name in owners if not any(other.startswith(f"{name} for ") for other in owners)]


def _print_outcomes(out: Console, outcomes: Sequence[HealOutcome], *, asked: bool) -> None:
    if not outcomes:
        out.print("Nothing is damaged.")
    for outcome in outcomes:
        source = f" from {outcome.source}" if outcome.source else ""
        out.print(f"{outcome.digest}  {outcome.state}{source}")
        if outcome.needed_by:
            out.print(f"  needed by {', '.join(_without_repeats(outcome.needed_by))}")
        if outcome.advice:
            out.print(f"  {outcome.advice}")
    if not asked and any(outcome.state == "damaged" for outcome in outcomes):
        out.print("Name where the right bytes may be: --from-cache DIR or --from-server URL")
