"""Last known resolutions, and the settings for the time when the server is away."""

from __future__ import annotations

import json
import math
import os
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from pt2hub.client.artifacts.resolutions import ResolutionStore
from pt2hub.client.availability import DEFAULT_MAX_AGE, Availability, parse_duration
from pt2hub.client.config import ClientConfig
from pt2hub.client.http.outages import is_away
from pt2hub.domain.digests import digest_bytes
from pt2hub.domain.storage import StorageLocation
from pt2hub.errors import (
    BadConfiguration,
    BadResponse,
    DatabaseUnavailable,
    InternalError,
    NotFound,
    ServerUnreachable,
    Unauthorized,
)
from pt2hub.wire.resolution import ArtifactRef, ResolvedReference
from support.locks import BUCKET

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.errors import Pt2hubError

ONE, OTHER = "https://one.example", "https://other.example"


def resolved(number: int = 3, storage: StorageLocation | None = BUCKET) -> ResolvedReference:
    artifact = ArtifactRef("torch2.13-cpu-x86_64_v3", digest_bytes(b"m"), "2026-11-21T10:00:00+00:00")
    return ResolvedReference("a/b@prod", "a/b", number, (artifact,), "prod", storage)


def test_the_last_answer_is_known_per_reference_and_server(tmp_path: Path) -> None:
    store = ResolutionStore(tmp_path, ONE)
    assert (store.find("a/b@prod"), store.storage()) == (None, None)
    store.record("a/b@prod", resolved(3))
    store.record("a/b@prod", resolved(4))
    known = ResolutionStore(tmp_path, ONE).find("a/b@prod")
    assert known is not None
    assert known.resolved == resolved(4)
    assert 0 <= known.age_s < 60
    assert store.storage() == BUCKET
    assert store.find("a/b@canary") is None
    assert ResolutionStore(tmp_path, OTHER).find("a/b@prod") is None


def test_the_longest_reference_has_a_file(tmp_path: Path) -> None:
    store = ResolutionStore(tmp_path, ONE)
    reference = f"{'t' * 99}/{'m' * 99}@{'a' * 128}"
    store.record(reference, resolved())
    assert store.find(reference) is not None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"resolved": 3, "resolved_at": 1}', "[" * 100_000, "\xff"])
def test_a_damaged_file_is_as_none(tmp_path: Path, text: str) -> None:
    store = ResolutionStore(tmp_path, ONE)
    store.record("a/b@prod", resolved())
    (path,) = [item for item in tmp_path.rglob("*.json") if item.name != "storage.json"]
    path.write_bytes(text.encode("latin-1"))
    assert store.find("a/b@prod") is None


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "resolutions").write_text("a file in its place")
    store = ResolutionStore(tmp_path, ONE)
    store.record("a/b@prod", resolved())
    assert store.find("a/b@prod") is None


def test_a_killed_write_leaves_the_answer_before_it(tmp_path: Path) -> None:
    store = ResolutionStore(tmp_path, ONE)
    store.record("a/b@prod", resolved(3))
    (path,) = [item for item in tmp_path.rglob("*.json") if item.name != "storage.json"]
    path.with_name(f"{path.name}.{os.getpid() + 1}").write_text('{"resolved": {"ref')
    known = store.find("a/b@prod")
    assert known is not None
    assert known.resolved.number == 3


def test_an_answer_from_the_future_has_no_age(tmp_path: Path) -> None:
    store = ResolutionStore(tmp_path, ONE)
    store.record("a/b@prod", resolved())
    (path,) = [item for item in tmp_path.rglob("*.json") if item.name != "storage.json"]
    document = json.loads(path.read_text()) | {"resolved_at": time.time() + 86400}
    path.write_text(json.dumps(document))
    known = store.find("a/b@prod")
    assert known is not None
    assert math.isinf(known.age_s), "a clock that was set back must not make it fresh"


@pytest.mark.parametrize(
    ("error", "away"),
    [
        (ServerUnreachable(), True),
        (DatabaseUnavailable(), True),
        (InternalError(), True),
        (BadResponse(context={"status": 502}), True),
        (BadResponse(context={"status": 404}), False),
        (BadResponse(), False),
        (NotFound(), False),
        (Unauthorized(), False),
    ],
)
def test_a_server_is_away_when_it_fails_and_not_when_it_refuses(error: Pt2hubError, away: bool) -> None:
    assert is_away(error) is away


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("15m", 900), ("1.5h", 5400), ("7d", 604800), ("2w", 1209600), ("0", 0)],
)
def test_durations_have_units(text: str, seconds: float) -> None:
    assert parse_duration(text, "PT2HUB_MAX_AGE") == seconds


@pytest.mark.parametrize(
    ("name", "value"),
    [("PT2HUB_MAX_AGE", value) for value in ("week", "-1d", "1y", "7 d 1", "nan", "1e9")]
    + [("PT2HUB_OFFLINE", "maybe")],
)
def test_a_wrong_setting_is_named(name: str, value: str, tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration) as caught:
        ClientConfig.from_environ({"PT2HUB_HOME": str(tmp_path), name: value})
    assert caught.value.where == name
    assert caught.value.hint


def test_settings_are_read_from_the_environment(tmp_path: Path) -> None:
    home = {"PT2HUB_HOME": str(tmp_path)}
    assert ClientConfig.from_environ(home).availability == Availability()
    assert parse_duration(DEFAULT_MAX_AGE, "") == Availability().max_age_s
    given = {"PT2HUB_OFFLINE": "1", "PT2HUB_MAX_AGE": "12h", "PT2HUB_STORAGE": "s3://models/pt2hub/"}
    found = ClientConfig.from_environ(home | given).availability
    assert found == Availability(
        offline=True, max_age_s=43200.0, storage=StorageLocation("s3://models/pt2hub")
    )
    assert ClientConfig.from_environ(home | {"PT2HUB_STORAGE": "/srv/blobs"}).availability.storage is None


def test_arguments_of_a_call_come_before_settings() -> None:
    settings = Availability(max_age_s=60.0)
    assert settings.override(offline=None, max_age=None) == settings
    assert settings.override(offline=True, max_age=timedelta(days=1)) == Availability(
        offline=True, max_age_s=86400.0
    )
    assert Availability(offline=True).override(offline=False, max_age=None).offline, (
        "the environment's owner decides"
    )
    for wrong in (-1, float("nan"), True, "7d"):
        with pytest.raises(BadConfiguration, match="max_age"):
            settings.override(offline=None, max_age=wrong)  # type: ignore[arg-type]


def test_a_server_counts_as_named_unless_it_is_only_the_default(tmp_path: Path) -> None:
    home = {"PT2HUB_HOME": str(tmp_path)}
    assert not ClientConfig.from_environ(home).has_server
    assert ClientConfig.from_environ(home | {"PT2HUB_URL": ONE}).has_server
    assert ClientConfig(home=tmp_path, url=ONE).has_server
    (tmp_path / "config.toml").write_text(f'url = "{ONE}"\n')
    assert ClientConfig.from_environ(home).has_server
