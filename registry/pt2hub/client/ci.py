"""ID tokens of CI systems, for trusted publishing."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import quote

import urllib3

from pt2hub.client.config import GITHUB_TOKEN, GITHUB_URL, ID_TOKEN
from pt2hub.errors import BadConfiguration, ServerUnreachable

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_BYTES = 1 << 16
_HINT = (
    "GitHub: `permissions: {id-token: write}` in the workflow. GitLab: `id_tokens: {PT2HUB_ID_TOKEN: {aud: URL}}` in the "
    "job. Elsewhere: set PT2HUB_ID_TOKEN."
)


def id_token(audience: str, given: Mapping[str, str]) -> str:
    """Return the ID token of the CI job that this process runs in.

    Args:
        audience: The server's address; GitHub is asked for a token for it, other systems' tokens have theirs.
        given: The job's variables, as from `config.ci_variables`.

    Raises:
        BadConfiguration: The job has none.
        ServerUnreachable: GitHub does not give one.
    """
    if given.get(ID_TOKEN):
        return given[ID_TOKEN].strip()
    url, secret = given.get(GITHUB_URL), given.get(GITHUB_TOKEN)
    if not (url and secret):
        raise BadConfiguration("This job has no ID token", where=ID_TOKEN, hint=_HINT)
    return _from_github(f"{url}{'&' if '?' in url else '?'}audience={quote(audience, safe='')}", secret)


def _from_github(url: str, secret: str) -> str:
    headers = {"Authorization": f"Bearer {secret}"}
    try:
        with urllib3.PoolManager(timeout=urllib3.Timeout(connect=10, read=20)) as pool:
            response = pool.request("GET", url, headers=headers, redirect=False, preload_content=False)
            data = response.read(_MAX_BYTES)
            response.release_conn()
        if response.status != HTTPStatus.OK:
            raise ServerUnreachable(
                f"GitHub answered with {response.status} to the request for an ID token",
                where=GITHUB_URL,
                hint=_HINT,
            )
        return str(json.loads(data)["value"])
    except (urllib3.exceptions.HTTPError, ValueError, KeyError, TypeError) as error:
        raise ServerUnreachable("GitHub gave no ID token", where=GITHUB_URL, hint=_HINT) from error
