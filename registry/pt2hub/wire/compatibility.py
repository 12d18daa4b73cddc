"""Which releases of client and server speak to each other; the one place with the rules.

* Within /api/v1 the API only grows: a field, a route or an error code that exists keeps its meaning.
* Readers ignore fields that they do not know, and take a missing new field for its default.
* Every answer of a server says its release in the header `Pt2hub-Version`; every request of a client says
  its own in `User-Agent: pt2hub/<version>`.
* A server refuses clients older than `OLDEST_CLIENT`, a client refuses servers older than `OLDEST_SERVER`.
  Either is raised only where an older one would do harm, and never by more than what is needed.
* Whoever states no release is let through: browsers and curl, and servers behind a proxy that drops headers.
"""

from __future__ import annotations

import re

from pt2hub import __version__
from pt2hub.errors import ClientTooOld, ServerTooOld

VERSION_HEADER = "Pt2hub-Version"
"""The header of an answer that holds the server's release."""
USER_AGENT = f"pt2hub/{__version__}"
"""How this client names itself."""
OLDEST_CLIENT = (0, 1)
"""The oldest release of a client that this server speaks to."""
OLDEST_SERVER = (0, 1)
"""The oldest release of a server that this client speaks to."""
_RELEASE = re.compile(r"(\d{1,6})\.(\d{1,6})(?![\d])")
_AGENT = re.compile(r"pt2hub/(\S{1,40})")
_LONGEST = 40


def parse_release(text: str) -> tuple[int, int] | None:
    """Major and minor number of a version such as `0.1.0` or `1.2.dev3`; None where it is none."""
    match = _RELEASE.match(text)
    return (int(match[1]), int(match[2])) if match else None


def check_client(user_agent: str) -> None:
    """Refuses clients that are too old for this server.

    Args:
        user_agent: The request's header; anything but an old pt2hub passes.

    Raises:
        ClientTooOld: It is a pt2hub older than `OLDEST_CLIENT`.
    """
    match = _AGENT.match(user_agent)
    release = parse_release(match[1]) if match else None
    if match is None or release is None or release >= OLDEST_CLIENT:
        return
    oldest = _shown(OLDEST_CLIENT)
    raise ClientTooOld(
        f"This client is pt2hub {match[1]}; the server runs {__version__} and speaks to {oldest} and newer.",
        hint=f"Upgrade the client: pip install --upgrade 'pt2hub>={oldest}'",
        context={"client": match[1], "server": __version__, "oldest_client": oldest},
    )


def check_server(version: str | None, *, url: str) -> None:
    """Refuses servers that are too old for this client.

    Args:
        version: What the answer's `Pt2hub-Version` says; None where there is no such header.
        url: The server's address, for the message.

    Raises:
        ServerTooOld: It is older than `OLDEST_SERVER`.
    """
    release = parse_release(version or "")
    if version is None or release is None or release >= OLDEST_SERVER:
        return
    version, oldest = version[:_LONGEST], _shown(OLDEST_SERVER)
    raise ServerTooOld(
        f"The server runs pt2hub {version}; this client is {__version__} and speaks to {oldest} and newer.",
        where=url,
        hint=f"Ask its operator to upgrade, or take a client of its release: pip install "
        f"'pt2hub=={_shown(release)}.*'",
        context={"client": __version__, "server": version, "oldest_server": oldest},
    )


def skew_hint(server_version: str | None) -> str | None:
    """A sentence about releases that differ, to stand below another error; None where they do not.

    Args:
        server_version: What the answer's `Pt2hub-Version` says; None where there is no such header.
    """
    theirs, ours = parse_release(server_version or ""), parse_release(__version__)
    if server_version is None or theirs is None or ours is None or theirs == ours:
        return None
    both = f"The server runs pt2hub {server_version[:_LONGEST]}, this client is {__version__}"
    if theirs > ours:
        return f"{both}: upgrade with pip install --upgrade pt2hub"
    return f"{both}: ask its operator to upgrade, or pip install 'pt2hub=={_shown(theirs)}.*'"


def _shown(release: tuple[int, int]) -> str:
    return f"{release[0]}.{release[1]}"
