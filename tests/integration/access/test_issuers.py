"""Issuers that hang, fail or name unsafe addresses, over HTTP."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from pt2hub.errors import IssuerUnavailable
from pt2hub.server.services.access import issuers
from pt2hub.server.services.access.issuers import HttpIssuers
from support.mute import mute_server

if TYPE_CHECKING:
    from support.oidc_provider import Provider


def test_an_issuer_that_hangs_holds_up_nobody_else(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuers, "_PATIENCE_S", 0.2)
    asked = HttpIssuers()
    with mute_server() as mute:
        first = threading.Thread(target=lambda: _refused(asked, mute), daemon=True)
        first.start()
        time.sleep(0.2)
        began = time.monotonic()
        asked.keys(provider.issuer)
        for _ in range(3):
            assert "does not answer" in _refused(asked, mute), "another request has asked"
        assert time.monotonic() - began < 2
        assert first.is_alive(), "it still waits"
    first.join(20)


def test_a_failure_is_remembered_and_keys_are_kept_meanwhile(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = HttpIssuers()
    provider.named = "http://127.0.0.1:1"
    for _ in range(3):
        assert "calls itself" in _refused(asked, provider.issuer)
    assert provider.asked == 1
    provider.named = None
    monkeypatch.setattr(issuers, "_FAILED_S", 0.0)
    asked.keys(provider.issuer, kid="one")
    monkeypatch.setattr(issuers, "_FAILED_S", 10.0)
    monkeypatch.setattr(issuers, "_REFRESHED_AFTER_S", 0.0)
    provider.named = "http://127.0.0.1:1"
    with pytest.raises(IssuerUnavailable):
        asked.keys(provider.issuer, kid="two")
    asked.keys(provider.issuer, kid="one")


def test_keys_are_read_as_safely_as_the_issuer(provider: Provider) -> None:
    provider.keys_address = provider.issuer.replace("http://", "https://") + "/keys"
    assert "no usable address of its keys" in _refused(HttpIssuers(), provider.issuer)
    assert not issuers._is_as_safe("http://issuer.example/keys", "https://issuer.example")


def _refused(asked: HttpIssuers, issuer: str) -> str:
    with pytest.raises(IssuerUnavailable) as caught:
        asked.keys(issuer)
    return caught.value.message
