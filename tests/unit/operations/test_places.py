"""Files are where the operating system expects them; what an earlier release left elsewhere is still found."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pt2hub.client.config import ClientConfig
from pt2hub.errors import BadConfiguration
from pt2hub.places import Places
from pt2hub.server.config import ServerConfig
from pt2hub.system.settings_file import SettingsFile

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home directory, without settings."""
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_without_settings_each_kind_of_file_has_its_usual_place(user: Path) -> None:
    assert Places.from_environ({}) == Places(
        user / ".local/share/pt2hub", user / ".config/pt2hub/config.toml", user / ".cache/pt2hub"
    )


def test_the_xdg_variables_are_followed(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATA", "CONFIG", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(user / name))
    assert Places.from_environ({}) == Places(
        user / "DATA/pt2hub", user / "CONFIG/pt2hub/config.toml", user / "CACHE/pt2hub"
    )


def test_a_home_that_is_named_contains_everything(user: Path) -> None:
    home = user / "home"
    assert Places.from_environ({"PT2HUB_HOME": "~/home"}) == Places(
        home, home / "config.toml", home / "cache"
    )
    cache = Places.from_environ({"PT2HUB_HOME": str(home), "PT2HUB_CACHE": "~/elsewhere"}).cache
    assert cache == user / "elsewhere"
    config = ClientConfig.from_environ({"PT2HUB_CACHE": "/a", "PT2HUB_SHARED_CACHE": "/b"})
    assert (str(config.cache), str(config.shared_cache)) == ("/a", "/b")


@pytest.mark.parametrize("empty", ["PT2HUB_HOME", "PT2HUB_CACHE", "PT2HUB_SHARED_CACHE"])
def test_an_empty_variable_counts_as_unset(user: Path, empty: str) -> None:
    assert Places.from_environ({empty: ""}) == Places.from_environ({})
    assert Places.from_environ({}).home.is_relative_to(user)


def test_what_an_earlier_release_left_is_used_until_there_is_something_in_the_new_place(user: Path) -> None:
    old = user / ".local/share/pt2hub"
    (old / "cache").mkdir(parents=True)
    (old / "config.toml").write_text('url = "http://old.test"\n')
    places = Places.from_environ({})
    assert (places.settings, places.cache) == (old / "config.toml", old / "cache")
    assert ClientConfig.from_environ({}).url == "http://old.test"
    (user / ".cache/pt2hub").mkdir(parents=True)
    SettingsFile(user / ".config/pt2hub/config.toml").write(url="http://new.test")
    places = Places.from_environ({})
    assert (places.settings, places.cache) == (user / ".config/pt2hub/config.toml", user / ".cache/pt2hub")
    assert ClientConfig.from_environ({}).url == "http://new.test"


def test_server_and_client_agree_about_the_settings(user: Path) -> None:
    config = ServerConfig.from_environ({})
    assert config.client_settings == ClientConfig.from_environ({}).settings_file.path
    assert config.home == user / ".local/share/pt2hub"
    named = {"PT2HUB_HOME": str(user / "home")}
    assert ServerConfig.from_environ(named).client_settings == user / "home/config.toml"


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_a_token_is_private_whatever_the_umask(user: Path, mask: int) -> None:
    file = SettingsFile(user / "a/pt2hub/config.toml")
    before = os.umask(mask)
    try:
        file.write(token="pt2_a_b")
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert [stat.S_IMODE(path.stat().st_mode) for path in list(file.path.parents)[:2]] == [0o700, 0o700]


@pytest.mark.parametrize("name", ["PT2HUB_HOME", "PT2HUB_CACHE", "PT2HUB_SHARED_CACHE"])
def test_a_home_of_nobody_is_refused(name: str) -> None:
    with pytest.raises(BadConfiguration, match="no home directory") as caught:
        Places.from_environ({name: "~nobody-of-this-name/x"})
    assert "PT2HUB_HOME" in str(caught.value.hint)


def test_up_tells_clients_without_settings_where_it_is(user: Path) -> None:
    program = """
import json, os
from pathlib import Path
from pt2hub.client.config import ClientConfig
from pt2hub.server.config import ServerConfig
from pt2hub.system.home import Home
config = ServerConfig.from_environ(os.environ)
Home(config.home, config.client_settings).settings_file.write(url="http://127.0.0.1:9", token="pt2_a_b")
found = ClientConfig.from_environ()
print(json.dumps([found.url, found.token, found.url_from]))
"""
    environ = {"HOME": str(user), "PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    out = subprocess.run([sys.executable, "-c", program], env=environ, check=True, capture_output=True).stdout
    assert json.loads(out) == ["http://127.0.0.1:9", "pt2_a_b", str(user / ".config/pt2hub/config.toml")]
