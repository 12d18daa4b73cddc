"""Settings of the sign-in: what is refused names its variable and repeats no secret."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pt2hub.errors import BadConfiguration
from pt2hub.server.provider_settings import read_provider

if TYPE_CHECKING:
    from pathlib import Path

WHOLE = {
    "PT2HUB_PUBLIC_URL": "https://hub.example/",
    "PT2HUB_OIDC_ISSUER": "https://login.example/realms/acme/",
    "PT2HUB_OIDC_CLIENT_ID": "pt2hub",
    "PT2HUB_OIDC_CLIENT_SECRET": "hidden-from-all",
}


def test_the_provider_is_read_from_the_environment(tmp_path: Path) -> None:
    assert read_provider({}) is None
    found = read_provider(WHOLE)
    assert found is not None
    assert found.redirect_uri == "https://hub.example/sign-in/callback"
    assert found.issuer == "https://login.example/realms/acme/", "as ID tokens name it, to the slash"
    assert (found.label, found.scopes) == ("single sign-on", ("openid", "profile", "email"))
    assert "hidden" not in repr(found)
    file = tmp_path / "secret"
    file.write_text("from-a-file\n")
    more = {"PT2HUB_OIDC_CLIENT_SECRET_FILE": str(file), "PT2HUB_OIDC_SCOPES": "openid groups"}
    found = read_provider(WHOLE | more)
    assert found is not None
    assert (found.client_secret, found.scopes) == ("from-a-file", ("openid", "groups"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PT2HUB_PUBLIC_URL", ""),
        ("PT2HUB_PUBLIC_URL", "http://hub.example"),
        ("PT2HUB_PUBLIC_URL", "https://hub.example/pt2hub"),
        ("PT2HUB_PUBLIC_URL", "hub.example"),
        ("PT2HUB_PUBLIC_URL", "https://[::1"),
        ("PT2HUB_OIDC_CLIENT_ID", ""),
        ("PT2HUB_OIDC_ISSUER", "http://login.example"),
        ("PT2HUB_OIDC_ISSUER", "https://user:word@login.example"),
        ("PT2HUB_OIDC_CLIENT_SECRET_FILE", "/nowhere/secret"),
        ("PT2HUB_OIDC_SCOPES", "profile email"),
    ],
)
def test_a_wrong_setting_is_named(name: str, value: str) -> None:
    with pytest.raises(BadConfiguration) as caught:
        read_provider(WHOLE | {name: value})
    assert caught.value.where == name
    assert "hidden-from-all" not in str(caught.value)
    assert "word" not in str(caught.value).replace("password", "")
