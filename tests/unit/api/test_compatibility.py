from __future__ import annotations

import pytest

from pt2hub.errors import ClientTooOld, ServerTooOld
from pt2hub.version import __version__
from pt2hub.wire import compatibility
from pt2hub.wire.compatibility import check_client, check_server, parse_release, skew_hint

URL = "http://registry.example:8400"


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("0.1.0", (0, 1)),
        ("1.20", (1, 20)),
        ("2.3.dev4+g1234", (2, 3)),
        ("10.0.0rc1", (10, 0)),
        ("", None),
        ("1", None),
        ("v1.2", None),
        ("one.two", None),
        ("9" * 5000 + ".1", None),
    ],
)
def test_a_release_is_major_and_minor(text: str, release: tuple[int, int] | None) -> None:
    assert parse_release(text) == release


def test_our_own_release_is_one_that_both_sides_take() -> None:
    check_client(compatibility.USER_AGENT)
    check_server(__version__, url=URL)
    assert skew_hint(__version__) is None


@pytest.mark.parametrize(
    "agent", ["", "curl/8.0", "Mozilla/5.0 (X11) pt2hub/0.0.1", "pt2hub/99.0.0", "pt2hub/unknown", "pt2hub/"]
)
def test_newer_clients_and_other_programs_pass(agent: str) -> None:
    check_client(agent)


def test_a_client_that_is_too_old_reads_what_to_install() -> None:
    with pytest.raises(ClientTooOld) as caught:
        check_client("pt2hub/0.0.9 python/3.11")
    assert "0.0.9" in str(caught.value)
    assert "pip install --upgrade 'pt2hub>=0.2'" in str(caught.value)
    assert caught.value.context == {"client": "0.0.9", "server": __version__, "oldest_client": "0.2"}


@pytest.mark.parametrize("version", [None, "", "nonsense", "99.0.0"])
def test_newer_servers_and_those_that_say_nothing_pass(version: str | None) -> None:
    check_server(version, url=URL)


def test_a_server_that_is_too_old_is_named_with_a_client_that_fits() -> None:
    with pytest.raises(ServerTooOld) as caught:
        check_server("0.0.9", url=URL)
    assert caught.value.where == URL
    assert "0.0.9" in caught.value.message
    assert "pip install 'pt2hub==0.0.*'" in str(caught.value)


@pytest.mark.parametrize("version", [None, "", "nonsense"])
def test_nothing_is_said_of_a_server_whose_release_is_unknown(version: str | None) -> None:
    assert skew_hint(version) is None


def test_releases_that_differ_are_named_with_what_to_do() -> None:
    newer, older = skew_hint("99.9.0"), skew_hint("0.0.9")
    assert newer == (
        f"The server runs pt2hub 99.9.0, this client is {__version__}: upgrade the client with "
        "pip install --upgrade pt2hub"
    )
    assert older is not None
    assert "pip install 'pt2hub==0.0.*'" in older
