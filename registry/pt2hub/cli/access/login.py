"""`pt2hub login`, `logout` and `whoami`: the server and the token of this machine's user."""

from __future__ import annotations

import platform
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from pt2hub.cli import panels
from pt2hub.cli.output import emit, note
from pt2hub.errors import InvalidInput
from pt2hub.rendering.times import format_local_time

if TYPE_CHECKING:
    from pt2hub.client.config import ClientConfig
    from pt2hub.wire.identities import Identity

_GIVEN = "this login"
_Server = Annotated[
    str | None,
    typer.Argument(
        metavar="URL", help="Address of the server; the one in use if omitted.", show_default=False
    ),
]


@panels.command(
    panels.ACCESS,
    "pt2hub login https://pt2hub.example",
    "pt2hub login https://pt2hub.example --token",
    "pt2hub login https://pt2hub.example --token-stdin",
    "pt2hub login https://pt2hub.example --ci",
)
def login(
    url: _Server = None,
    *,
    ask_token: Annotated[
        bool, typer.Option("--token", help="Ask for a token, even if the server has a sign-in.")
    ] = False,
    token_stdin: Annotated[
        bool, typer.Option("--token-stdin", help="Read the token from stdin instead of asking for it.")
    ] = False,
    ci: Annotated[
        bool,
        typer.Option(
            "--ci", help="Exchange the ID token of this CI job for a short-lived token (trusted publishing)."
        ),
    ] = False,
) -> None:
    """Get a token of a server, and store both in the settings file.

    In a terminal, you approve the login in a browser if the server has a sign-in; else it asks for a token. The file is
    readable by its owner only. PT2HUB_URL and PT2HUB_TOKEN are used before it.
    """
    from pt2hub.client.client import Client
    from pt2hub.client.config import ClientConfig, checked_token

    config = ClientConfig.from_environ()
    if url:
        config = config.at(url)
    if ci:
        given = _exchanged(config)
    elif token_stdin or not sys.stdin.isatty():
        given = sys.stdin.readline().strip()
    else:
        given = (None if ask_token else _approved(config)) or _read_token(config.url)
    if not given:
        raise InvalidInput(
            "No token was given",
            where="token",
            hint="Run it in a terminal to sign in with a browser, if the server has a provider; or `pt2hub admin token` on the "
            "server's machine creates one.",
        )
    token = checked_token(given, "token")
    config = replace(config, token=token, token_from=_GIVEN)
    with Client(config) as client:
        identity = client.whoami()
    config.settings_file.write(url=config.url, token=token)
    _note_environment()
    emit(_document(config, identity), lambda out: out.print(_sentence(config, identity)))


@panels.command(panels.ACCESS, "pt2hub logout")
def logout() -> None:
    """Remove the token from the settings file.

    It stays valid: `pt2hub admin revoke` on the server's machine ends it.
    """
    from pt2hub.client.config import ClientConfig

    file = ClientConfig.from_environ().settings_file
    was_there = "token" in file.read()
    if was_there:
        file.write(token=None)
    _note_environment()
    text = (
        f"Removed the token from {file.path}." if was_there else f"{file.path} has no token: nothing to do."
    )
    emit({"settings": str(file.path), "removed": was_there}, lambda out: out.print(text))


@panels.command(panels.ACCESS, "pt2hub whoami", "pt2hub whoami --json")
def whoami() -> None:
    """Show the server in use, and whose token is sent to it."""
    from pt2hub.client.client import Client

    with Client() as client:
        identity, config = client.whoami(), client.config
    emit(_document(config, identity), lambda out: out.print(_sentence(config, identity)))


def _exchanged(config: ClientConfig) -> str:
    from pt2hub.client.ci import id_token
    from pt2hub.client.client import Client
    from pt2hub.client.config import ci_variables

    given = id_token(config.url, ci_variables())
    with Client(replace(config, token=None)) as client:
        return client.exchange(given).token


def _read_token(url: str) -> str:
    return str(typer.prompt(f"Token for {url}", hide_input=True, err=True)).strip()


def _approved(config: ClientConfig) -> str | None:
    """Return the token of a login that a person approves in a browser; None if the server has no sign-in."""
    from pt2hub.client.client import Client
    from pt2hub.errors import NotFound, SignInUnavailable

    with Client(replace(config, token=None)) as client:
        try:
            asked = client.devices.request(f"pt2hub on {platform.node() or 'a machine'}")
        except (NotFound, SignInUnavailable):  # an older server has no such route
            return None
        minutes = asked.expires_in // 60
        note(
            f"Open {asked.verification_uri} in a browser and enter the code {asked.user_code}",
            f"or open {asked.verification_uri_complete}",
            f"Waiting for you to approve it there, at most {minutes} min ...",
        )
        return client.devices.wait(asked).token


def _note_environment() -> None:
    """Say which variables are used before the settings file."""
    from pt2hub.client.config import variables_before_file

    for name in variables_before_file():
        note(f"{name} is set and is used before the settings file.")


def _document(config: ClientConfig, identity: Identity) -> dict[str, object]:
    return {
        "url": config.url,
        "name": identity.name,
        "admin": identity.admin,
        "scopes": list(identity.scopes),
        "patterns": list(identity.patterns),
        "expires_at": identity.expires_at,
        "token_from": config.token_from,
    }


def _sentence(config: ClientConfig, identity: Identity) -> str:
    return (
        f"{identity.name} on {config.url}, with {describe_token(identity)} from "
        f"{config.token_from or 'this program'}"
    )


def describe_token(identity: Identity) -> str:
    """Return what a token allows, for a sentence."""
    kind = "an admin token" if identity.admin else f"a token that allows {', '.join(identity.scopes)}"
    place = "" if identity.patterns == ("*",) else f" for {', '.join(identity.patterns)}"
    until = f" until {format_local_time(identity.expires_at)}" if identity.expires_at else ""
    return f"{kind}{place}{until}"
