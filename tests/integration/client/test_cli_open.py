"""`pt2hub open`: the address of the page that is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from pt2hub.domain.tokens import Actor

if TYPE_CHECKING:
    from support.registry import Registry
    from support.shell import Shell

MODEL = "vision/resnet18"


@pytest.fixture(autouse=True)
def _no_display(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)


def opened(shell: Shell, *args: str) -> str:
    """The path of the page that a command opens."""
    told = shell("open", *args)
    assert (told.code, told.err) == (0, "")
    return urlsplit(told.out.strip()).path


def test_each_thing_has_its_page(shell: Shell, served: Registry) -> None:
    version = served.submit()
    digest = served.published(version)
    served.services.aliases.move(MODEL, "prod", 1, expected=None, reason="first", by=Actor("ci"))
    assert opened(shell) == "/"
    assert opened(shell, MODEL) == f"/models/{MODEL}"
    assert opened(shell, f"{MODEL}@1") == f"/models/{MODEL}/versions/1"
    assert opened(shell, f"{MODEL}@prod") == f"/models/{MODEL}/versions/1"
    assert opened(shell, f"{MODEL}@{digest[:20]}") == f"/artifacts/{digest}"
    assert opened(shell, version.builds[0].id) == f"/builds/{version.builds[0].id}"
    code, said = shell.json("open", MODEL)
    assert (code, said["opened"]) == (0, False)
    assert said["url"].endswith(f"/models/{MODEL}")


def test_what_is_not_there_is_said_with_what_is_near(shell: Shell, served: Registry) -> None:
    served.submit()
    told = shell("open", "vision/resnet81")
    assert (told.code, told.out) == (1, "")
    assert f"Did you mean {MODEL}" in told.err
    assert "pt2hub builds" in shell("open", "0" * 16).err
    assert "is neither a build id nor a model name" in shell("open", "resnet18").err
    assert "[invalid_input]" in shell("open", "A/b@3").err
    assert "[not_ready]" not in shell("open", f"{MODEL}@1").err
