"""`pt2hub token`: tokens that the holder of a token manages through the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pt2hub.cli import panels
from pt2hub.cli.access.lifetimes import parse_lifetime
from pt2hub.cli.access.token_tables import print_tokens
from pt2hub.cli.output import emit
from pt2hub.domain.tokens import Scope, select_token

if TYPE_CHECKING:
    from pt2hub.client.client import Client
    from pt2hub.domain.tokens import TokenInfo

_Which = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME|ID", help="Name or id of the token; your own if omitted.", show_default=False
    ),
]


def register(app: typer.Typer) -> None:
    """Add the group to the app."""
    group = typer.Typer(
        help="Tokens: what they allow, and until when.", no_args_is_help=True, suggest_commands=False
    )
    panels.add(group, create, ls, rotate, revoke)
    app.add_typer(group, name="token", rich_help_panel=panels.ACCESS)


@panels.command(None, "pt2hub token create vision-ci --scope publish --models 'vision/*' --expires 90d")
def create(
    name: Annotated[str, typer.Argument(help="Its use, for lists and records.")],
    *,
    scope: Annotated[list[Scope], typer.Option(help="An action to allow; repeat it for more.")],
    models: Annotated[
        list[str], typer.Option(metavar="PATTERN", help="Models to allow it for, such as 'vision/*'.")
    ],
    expires: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Time until it expires, such as 90d; never if omitted."),
    ] = None,
) -> None:
    """Create a token, with an admin token.

    Yours must cover its models. The new one is shown this once.
    """
    from pt2hub.client.client import Client

    lasting = parse_lifetime(expires, "--expires") if expires else None
    with Client() as client:
        made = client.tokens.create(name, scopes=scope, models=models, lasting=lasting)
    emit(made, lambda out: out.print(made.token))


@panels.command(None, "pt2hub token ls")
def ls() -> None:
    """List your token, or all that your admin token covers."""
    from pt2hub.client.client import Client

    with Client() as client:
        found = client.tokens.list()
    emit({"tokens": found}, lambda out: print_tokens(out, found))


@panels.command(None, "pt2hub token rotate", "pt2hub token rotate vision-ci --overlap 7d")
def rotate(
    token: _Which = None,
    *,
    overlap: Annotated[
        str, typer.Option(metavar="DURATION", help="How long the old token still works, at most 30d.")
    ] = "1d",
) -> None:
    """Replace a token by a new one that allows the same.

    The new one is shown this once; `pt2hub login` stores it. Tokens of people are replaced on the page Tokens.
    """
    from pt2hub.client.client import Client

    rest = parse_lifetime(overlap, "--overlap")
    with Client() as client:
        made = client.tokens.rotate(_find(client, token).id, overlap=rest)
    emit(made, lambda out: out.print(made.token))


@panels.command(None, "pt2hub token revoke vision-ci", "pt2hub token revoke 3")
def revoke(token: Annotated[str, typer.Argument(metavar="NAME|ID", help="Name or id of the token.")]) -> None:
    """Revoke a token, immediately and permanently."""
    from pt2hub.client.client import Client

    with Client() as client:
        revoked = client.tokens.revoke(_find(client, token).id)
    emit(revoked, lambda out: out.print(f"Token {revoked.id} ({revoked.name}) was revoked."))


def _find(client: Client, given: str | None) -> TokenInfo:
    wanted = str(client.whoami().id) if given is None else given
    return select_token(client.tokens.list(), wanted, listed_by="pt2hub token ls")
