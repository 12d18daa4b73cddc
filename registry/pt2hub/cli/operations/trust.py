"""`pt2hub admin trust`, `trusted` and `distrust`: rules by which ID tokens of CI systems and other providers are exchanged for tokens."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from pt2hub.cli import panels
from pt2hub.cli.access.lifetimes import parse_lifetime
from pt2hub.cli.output import emit
from pt2hub.domain.tokens import Scope  # noqa: TC001  # typer reads annotations when it runs
from pt2hub.errors import InvalidInput
from pt2hub.rendering.quantities import format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from pt2hub.domain.trust import TrustRule
    from pt2hub.server.config import ServerConfig


def _config() -> ServerConfig:
    from pt2hub.server.config import ServerConfig

    return ServerConfig.from_environ(os.environ)


@panels.command(
    None,
    "pt2hub admin trust vision-ci --issuer https://token.actions.githubusercontent.com "
    "--audience https://pt2hub.example --claim repository=acme/vision --claim ref=refs/heads/main "
    "--scope publish --models 'vision/*'",
)
def trust(  # noqa: PLR0913  # typer makes an option of each
    name: Annotated[str, typer.Argument(help="Name of the rule; tokens that it creates begin with it.")],
    *,
    issuer: Annotated[str, typer.Option(help="The provider, as its tokens name it.")],
    audience: Annotated[
        str,
        typer.Option(help="What the ID tokens must be for: the address of this server, as clients use it."),
    ],
    claim: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=PATTERN",
            help="What a token must claim; repeat it for more. * stands for any characters.",
        ),
    ],
    scope: Annotated[list[Scope], typer.Option(help="An action to allow; repeat it for more.")],
    models: Annotated[
        list[str], typer.Option(metavar="PATTERN", help="Models to allow it for, such as 'vision/*'.")
    ],
    lasting: Annotated[
        str, typer.Option(metavar="DURATION", help="How long the created tokens last, at most 12h.")
    ] = "15m",
) -> None:
    """Exchange some provider's ID tokens for tokens.

    The first rule that applies to an ID token decides what its holder gets.
    """
    from pt2hub.server.admin import add_trust

    rule = add_trust(
        _config(),
        name,
        issuer=issuer,
        audience=audience,
        claims=dict(map(_claim, claim)),
        scopes=scope,
        patterns=models,
        lasting=parse_lifetime(lasting, "--lasting"),
    )
    emit(rule, lambda out: out.print(f"Trust rule {rule.id} ({rule.name}) was added."))


@panels.command(None, "pt2hub admin trusted")
def trusted() -> None:
    """List the trust rules, in the order in which they apply."""
    from pt2hub.server.admin import list_trust

    found = list_trust(_config())
    emit({"rules": found}, lambda out: _print_rules(out, found))


@panels.command(None, "pt2hub admin distrust 3")
def distrust(
    rule: Annotated[int, typer.Argument(metavar="ID", help="Number of the rule, as listed.")],
) -> None:
    """Remove a trust rule.

    Tokens that it created last until they expire.
    """
    from pt2hub.server.admin import remove_trust

    removed = remove_trust(_config(), rule)
    emit(removed, lambda out: out.print(f"Trust rule {removed.id} ({removed.name}) was removed."))


def _claim(text: str) -> tuple[str, str]:
    name, separator, pattern = text.partition("=")
    if not (name and separator and pattern):
        raise InvalidInput(
            f"Invalid claim {text[:80]!a}",
            where="--claim",
            hint="Write NAME=PATTERN, such as repository=acme/vision.",
        )
    return name, pattern


def _print_rules(out: Console, rules: Sequence[TrustRule]) -> None:
    from pt2hub.cli.tables import print_table

    rows = [
        (
            str(rule.id),
            rule.name,
            rule.issuer,
            [f"{name}={pattern}" for name, pattern in rule.claims.items()],
            [str(scope) for scope in rule.scopes],
            list(rule.patterns),
            format_duration(rule.seconds),
        )
        for rule in rules
    ]
    headings = ("ID", "NAME", "ISSUER", "CLAIMS", "SCOPES", "MODELS", "LASTS")
    print_table(out, headings, rows, empty="There are no trust rules.")
