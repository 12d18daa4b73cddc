"""`pt2hub login`, `logout`, `whoami`, `config` and `doctor` over a real server."""

from __future__ import annotations

import io
import stat
from typing import TYPE_CHECKING

import pytest

from pt2hub.client.config import ClientConfig

if TYPE_CHECKING:
    from pt2hub.client.client import Client
    from support.registry import Registry
    from support.shell import Shell


@pytest.fixture
def token(client: Client, served: Registry, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> str:
    """A token of ada's, while neither environment nor file has one."""
    del client, shell  # the server, and its address in the environment
    monkeypatch.delenv("PT2HUB_TOKEN")
    return served.services.access.create_token("ada")


def give(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_a_token_is_checked_stored_for_its_owner_only_used_and_removed(
    shell: Shell, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = shell("whoami")
    assert (refused.code, "[unauthorized]" in refused.err) == (1, True)
    give(monkeypatch, f"{token}\n")
    told = shell("login", "--token-stdin")
    assert (told.code, told.out.startswith("ada on http://")) == (0, True)
    assert "PT2HUB_URL is set" in told.err
    assert token not in told.out + told.err
    file = ClientConfig.from_environ().settings_file
    assert file.read()["token"] == token
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    code, document = shell.json("whoami")
    assert (code, document["name"], document["admin"]) == (0, "ada", False)
    assert document["token_from"] == str(file.path)
    assert "Removed the token" in shell("logout").out
    assert "token" not in file.read()
    assert "nothing to do" in shell("logout").out
    assert shell("whoami").code == 1


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ("", "invalid_input"),
        ("\n", "invalid_input"),
        ("pt2_none\n", "unauthorized"),
        ("two words\n", "bad_configuration"),
    ],
)
def test_a_wrong_token_is_not_stored(
    shell: Shell, token: str, monkeypatch: pytest.MonkeyPatch, given: str, code: str
) -> None:
    give(monkeypatch, f"{token}\n")
    assert shell("login", "--token-stdin").code == 0
    give(monkeypatch, given)
    told = shell("login", "--token-stdin")
    assert (told.code, f"[{code}]" in told.err) == (1, True)
    assert ClientConfig.from_environ().settings_file.read()["token"] == token


def test_an_admin_is_called_one(shell: Shell, served: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PT2HUB_TOKEN", served.services.access.create_token("eve", admin=True))
    assert "with an admin token from PT2HUB_TOKEN" in shell("whoami").out


def test_settings_are_listed_with_their_origin_and_no_token(
    shell: Shell, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(monkeypatch, token)
    shell("login", "--token-stdin")
    file = ClientConfig.from_environ().settings_file
    told = shell("config", "ls")
    rows = {line[0]: line for line in told.lines[1:]}
    assert rows["url"][-1] == "PT2HUB_URL"
    assert rows["token"][-1] == str(file.path)
    assert rows["offline"] == ["offline", "no", "default"]
    assert token not in told.out
    assert shell("config", "get", "cache").out.strip().endswith("cache")
    assert shell.json("config", "get", "token")[1]["value"] == "set (not shown)"


def test_another_servers_address_removes_the_token(
    shell: Shell, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(monkeypatch, token)
    shell("login", "--token-stdin")
    file = ClientConfig.from_environ().settings_file
    url = str(file.read()["url"])
    assert shell("config", "set", "url", f"{url}/").code == 0
    assert file.read() == {"url": url, "token": token}
    assert shell("config", "set", "url", "https://other.example").code == 0
    assert file.read() == {"url": "https://other.example"}
    assert shell("config", "unset", "url").code == 0
    assert file.read() == {}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("get", "colour"), "Unknown setting 'colour'"),
        (("set", "url", "nowhere"), "Invalid server address"),
        (("set", "token", "x"), "pt2hub login"),
        (("set", "cache", "/tmp"), "PT2HUB_CACHE"),
    ],
)
def test_a_wrong_setting_is_refused_with_what_to_do(shell: Shell, args: tuple[str, ...], words: str) -> None:
    told = shell("config", *args)
    assert (told.code, words in told.err) == (1, True)


def test_doctor_finds_everything_well(shell: Shell) -> None:
    code, document = shell.json("doctor")
    found = {item["name"]: item["state"] for item in document["checks"]}
    assert code == 0
    assert [found[name] for name in ("server", "token", "cache", "torch", "gpu")] == ["ok"] * 5
    assert found.keys() >= {"compiler", "sandbox"}


def test_doctor_says_what_is_wrong_and_its_cure(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PT2HUB_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("PT2HUB_CACHE", "/proc/nowhere")
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("PT2HUB_BWRAP", "/bin/true")
    code, document = shell.json("doctor")
    found = {item["name"]: item for item in document["checks"]}
    assert code == 1
    assert [found[name]["state"] for name in ("server", "token", "cache")] == ["failed", "warning", "failed"]
    assert [found[name]["state"] for name in ("compiler", "sandbox")] == ["warning", "warning"]
    assert all(found[name]["cure"] for name in ("server", "cache", "compiler", "sandbox"))
    assert "PT2HUB_CACHE" in shell("doctor").out


def test_doctor_reads_a_broken_settings_file(shell: Shell) -> None:
    file = ClientConfig.from_environ().settings_file.path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("url = [")
    code, document = shell.json("doctor")
    assert (code, document["checks"][0]["name"], document["checks"][0]["state"]) == (1, "settings", "failed")
