"""The environment comes first, then config.toml, then this machine's default."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pt2hub.client.client import Client
from pt2hub.client.config import DEFAULT_URL, ClientConfig
from pt2hub.errors import BadConfiguration

if TYPE_CHECKING:
    from pathlib import Path


def read(home: Path, **environ: str) -> ClientConfig:
    return ClientConfig.from_environ({"PT2HUB_HOME": str(home), **environ})


def test_without_settings_the_client_speaks_to_this_machine(tmp_path: Path) -> None:
    config = read(tmp_path, PT2HUB_URL="", PT2HUB_TOKEN="")
    assert (config.url, config.token, config.cache) == (DEFAULT_URL, None, tmp_path / "cache")


def test_the_file_that_up_wrote_is_used_and_the_environment_overrides_it(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('url = "http://127.0.0.1:9000/"\ntoken = "pt2_a_b"\n')
    config = read(tmp_path)
    assert config.token == "pt2_a_b"
    assert config.url.startswith("http://127.0.0.1:9000")
    config = read(tmp_path, PT2HUB_URL="https://hub.test/base/", PT2HUB_TOKEN="pt2_c_d")
    assert (config.url, config.token) == ("https://hub.test/base", "pt2_c_d")


def test_a_token_is_not_printed(tmp_path: Path) -> None:
    assert "secret" not in repr(read(tmp_path, PT2HUB_TOKEN="secret"))


@pytest.mark.parametrize("url", ["hub.test", "ftp://hub.test", "http://", "http://a b"])
def test_a_wrong_address_is_refused_with_its_variable(tmp_path: Path, url: str) -> None:
    with pytest.raises(BadConfiguration, match="Invalid server address") as caught:
        read(tmp_path, PT2HUB_URL=url)
    assert caught.value.where == "PT2HUB_URL"


@pytest.mark.parametrize("text", ["url = ", "token = 3", 'url = "nowhere"', "\x00"])
def test_a_damaged_file_is_refused_with_its_path(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(BadConfiguration) as caught:
        read(tmp_path)
    assert "config.toml" in str(caught.value.where)


def test_a_token_read_from_a_file_loses_its_line_end(tmp_path: Path) -> None:
    assert read(tmp_path, PT2HUB_TOKEN="pt2_a_b\n").token == "pt2_a_b"


def test_a_token_that_no_header_can_carry_is_refused_and_not_shown(tmp_path: Path) -> None:
    for given in ("sec\nret", "secr\u00e9t", "sec ret"):
        with pytest.raises(BadConfiguration) as caught:
            read(tmp_path, PT2HUB_TOKEN=given)
        assert caught.value.where == "PT2HUB_TOKEN"
        assert "sec" not in str(caught.value)


def test_an_address_with_a_password_is_refused_and_the_password_not_shown(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match="Invalid server address") as caught:
        read(tmp_path, PT2HUB_URL="https://someone:secret@hub.test")
    assert "secret" not in str(caught.value)


def test_what_a_program_gives_is_checked_as_the_environment_is(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match="Invalid server address"):
        Client(read(tmp_path), url="hub.test:8400")
    with pytest.raises(BadConfiguration, match="invalid characters"):
        Client(read(tmp_path), token="a\nb")


def test_a_token_in_the_file_goes_to_the_server_in_the_file_only(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('url = "http://127.0.0.1:9000/"\ntoken = "pt2_a_b"\n')
    assert read(tmp_path, PT2HUB_URL="https://hub.test").token is None
    assert read(tmp_path, PT2HUB_URL="http://127.0.0.1:9000").token == "pt2_a_b"
    assert Client(read(tmp_path), url="https://hub.test").config.token is None
    assert Client(read(tmp_path), url="http://127.0.0.1:9000/").config.token == "pt2_a_b"
    (tmp_path / "config.toml").write_text('token = "pt2_a_b"\n')
    assert read(tmp_path, PT2HUB_URL="https://hub.test").token == "pt2_a_b"
