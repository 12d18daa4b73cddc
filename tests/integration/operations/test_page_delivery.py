"""How pages and their files come to a reader: compressed where that is taken, kept for ever where names hold digests."""

from __future__ import annotations

import gzip
import hashlib
import json
import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.errors import InternalError
from pt2hub.server.pages import paths
from pt2hub.server.pages.assets import Assets
from pt2hub.server.pages.templates import ASSETS
from support.pages import Page

if TYPE_CHECKING:
    from flask.testing import FlaskClient

WEB = Path(__file__).parents[3] / "web"
SPECS = "/api/v1/openapi.json"


@pytest.fixture(scope="module")
def scripts() -> dict[str, Any]:
    """The functions of `web/build.py`."""
    return runpy.run_path(str(WEB / "build.py"))


@pytest.fixture(scope="module")
def built(scripts: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Styles and scripts, bundled for this test."""
    folder = tmp_path_factory.mktemp("web") / "static"
    scripts["build"](folder)
    return folder


@pytest.fixture
def styled(web: FlaskClient, built: Path) -> FlaskClient:
    """The pages with these files."""
    web.application.extensions[ASSETS] = assets = Assets.of(built)
    web.application.view_functions["static"] = assets.serve
    return web


def test_built_files_have_their_digests_in_their_names(
    built: Path, scripts: dict[str, Any], tmp_path: Path
) -> None:
    names = json.loads((built / "assets.json").read_text())
    assert {"pages.js", "pages.css", "icon.svg", "licenses.txt"} <= names.keys()
    for name in names.values():
        data = (built / name).read_bytes()
        assert hashlib.sha256(data).hexdigest()[:12] in name
    assert "Leon Sorokin" in (built / names["licenses.txt"]).read_text()
    again = tmp_path / "again"
    scripts["build"](again)
    assert sorted(path.name for path in again.iterdir()) == sorted(path.name for path in built.iterdir())


def test_every_file_that_a_template_names_is_built(built: Path) -> None:
    names = json.loads((built / "assets.json").read_text())
    templates = " ".join(path.read_text() for path in (WEB / "templates").rglob("*.html"))
    asked = {part.partition(")")[0].strip("\"'") for part in templates.split("asset(")[1:]}
    assert asked - names.keys() == set()


def test_where_node_is_missing_a_package_that_brings_it_is_asked_for(
    scripts: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert scripts["needs"]() == []
    monkeypatch.setenv("PATH", str(tmp_path))
    assert scripts["needs"]() == [scripts["REQUIREMENT"]]
    for name in ("node", "npm"):
        (tmp_path / name).write_text("#!/bin/sh\necho v18.19.1\n")
        (tmp_path / name).chmod(0o755)
    assert scripts["needs"]() == [scripts["REQUIREMENT"]]


def test_a_file_is_kept_for_ever_and_compressed_for_whoever_takes_it(styled: FlaskClient) -> None:
    address = styled.application.extensions[ASSETS].url("pages.css")
    plain = styled.get(address)
    small = styled.get(address, headers={"Accept-Encoding": "br, gzip"})
    assert gzip.decompress(small.data) == plain.data
    assert "immutable" in small.headers["Cache-Control"]
    assert small.headers["Vary"] == "Accept-Encoding"
    assert styled.get("/static/pages.css").status_code == 404
    assert styled.get("/static/../base.html").status_code == 404


def test_pages_and_json_are_compressed_for_whoever_takes_it(styled: FlaskClient) -> None:
    for address in ("/sign-in", SPECS):
        plain = styled.get(address)
        assert "Content-Encoding" not in plain.headers
        small = styled.get(address, headers={"Accept-Encoding": "gzip"})
        assert small.headers["Content-Encoding"] == "gzip"
        assert len(small.data) < len(plain.data) / 2
        assert gzip.decompress(small.data) == plain.data
        assert "Accept-Encoding" in small.headers["Vary"]
        assert small.headers["X-Content-Type-Options"] == "nosniff"
        refused = styled.get(address, headers={"Accept-Encoding": "gzip;q=0"})
        assert refused.data == plain.data


def test_without_built_files_pages_are_plain_and_whole_and_say_how_to_build_them(web: FlaskClient) -> None:
    web.application.extensions[ASSETS] = Assets.of(None)
    html = web.get("/sign-in").get_data(as_text=True)
    assert "/static/" not in html
    assert "make web" in Page(html).text
    assert ("token", "") in Page(html).fields


def test_an_installation_without_templates_says_so(tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "pt2hub" / "server" / "pages"
    package.mkdir(parents=True)
    assert paths.static(package) is None
    with pytest.raises(InternalError, match="templates"):
        paths.templates(package)
