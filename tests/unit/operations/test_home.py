from __future__ import annotations

import stat
import tomllib
from typing import TYPE_CHECKING

import pytest

from pt2hub.errors import BadConfiguration, HomeInUse, HomeUnusable
from pt2hub.system.home import Home

if TYPE_CHECKING:
    from pathlib import Path


def test_a_second_holder_is_told_who_holds_the_home(tmp_path: Path) -> None:
    with Home(tmp_path / "home").held():
        Home(tmp_path / "home").announce("http://127.0.0.1:8400")
        with pytest.raises(HomeInUse, match=r"process \d+, serving http://127.0.0.1:8400") as caught:
            Home(tmp_path / "home").held().__enter__()
    assert caught.value.hint
    with Home(tmp_path / "home").held():
        pass


@pytest.mark.parametrize("path", ["file", "file/below"])
def test_a_home_that_is_a_file_or_below_one_is_unusable(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HomeUnusable) as caught, Home(tmp_path / path).held():
        pass
    assert "PT2HUB_HOME" in (caught.value.hint or "")


def test_a_home_that_is_made_is_private(tmp_path: Path) -> None:
    with Home(tmp_path / "a" / "home").held():
        assert stat.S_IMODE((tmp_path / "a" / "home").stat().st_mode) == 0o700


def test_settings_are_private_and_what_others_wrote_stays(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert home.settings_file.read() == {}
    home.settings_file.path.write_text('# mine\nurl = "http://old"\ntheme = "dark"\n[table]\ntoken = 3\n')
    home.settings_file.write(url='http://new/"quoted"', token="pt2_x_y")
    settings = tomllib.loads(home.settings_file.path.read_text())
    assert settings["url"] == 'http://new/"quoted"'
    assert settings["theme"] == "dark"
    assert settings["token"] == "pt2_x_y"
    assert "# mine" in home.settings_file.path.read_text()
    assert stat.S_IMODE(home.settings_file.path.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["config.toml"]


def test_settings_that_are_not_toml_are_named(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("url = = 3")
    with pytest.raises(BadConfiguration, match="Cannot read the file: Invalid"):
        Home(tmp_path).settings_file.read()
