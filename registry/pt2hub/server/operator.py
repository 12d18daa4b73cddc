"""The account that runs commands on the server's machine."""

from __future__ import annotations

import getpass
import os

from pt2hub.domain.principals import PrincipalKind
from pt2hub.domain.tokens import Actor


def operator() -> Actor:
    """Return this process's account as an actor, since there is no token."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a container runs accounts that have no name
        name = str(os.getuid())
    return Actor(name, admin=True, kind=PrincipalKind.OPERATOR)
