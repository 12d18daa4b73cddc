"""Answers, bundles and locks that contradict what was asked for: nothing of them is loaded, and nothing else is touched."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.client.client import Client
from pt2hub.client.config import ClientConfig
from pt2hub.client.lock.declarations import Project
from pt2hub.client.lock.locker import Upgrade
from pt2hub.domain.artifacts import ARTIFACT_TYPE, CONFIG_TYPE
from pt2hub.domain.digests import digest_bytes
from pt2hub.errors import (
    BadResponse,
    CorruptArchive,
    DigestMismatch,
    HomeUnusable,
    InvalidInput,
    LockInvalid,
    NotFound,
    Offline,
    ResolutionExpired,
    UsageError,
)
from pt2hub.testing import FakeRegistry
from pt2hub.wire.resolution import ArtifactRef

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MODEL = "team/net"
V3, V4 = "torch2.13-cpu-x86_64_v3", "torch2.13-cpu-x86_64_v4"


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    """A registry with two versions for two targets."""
    with FakeRegistry() as registry:
        registry.add_version(MODEL, targets=[V3, V4])
        registry.add_version(MODEL, targets=[V3, V4], code=b"2")
        yield registry


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Client]:
    """A client with an empty cache and no server."""
    with Client(ClientConfig(home=tmp_path / "elsewhere", url="http://127.0.0.1:9")) as client:
        yield client


def test_a_digest_that_is_a_path_touches_no_file(fake: FakeRegistry, tmp_path: Path) -> None:
    victim = tmp_path / "bashrc"
    victim.write_text("precious")
    config = {"mediaType": CONFIG_TYPE, "digest": str(victim), "size": 8}
    data = json.dumps({"artifactType": ARTIFACT_TYPE, "config": config, "layers": []}).encode()
    models = fake._models  # what a hostile server would keep
    models.blobs[digest_bytes(data)] = data
    models._models[MODEL].versions[1] = [ArtifactRef(V3, digest_bytes(data), "")]
    with pytest.raises(BadResponse, match="must be a digest"):
        fake.client.pull(f"{MODEL}@1", target=V3, progress=False)
    assert victim.read_text() == "precious"


def test_another_version_than_asked_for_is_not_loaded(
    fake: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = fake._models.resolve(f"{MODEL}@1")
    monkeypatch.setattr(fake._models, "resolve", lambda _: first)
    with pytest.raises(BadResponse, match=f"{MODEL}@2 was resolved to {MODEL}@1"):
        fake.client.pull(f"{MODEL}@2", target=V3, progress=False)


def test_a_token_of_the_settings_file_goes_to_no_other_server(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('url = "https://a.example"\ntoken = "pt2_secret"\n')
    for environ in ({}, {"PT2HUB_URL": "https://a.example"}):
        config = ClientConfig.from_environ({"PT2HUB_HOME": str(tmp_path), **environ})
        assert config.at("https://a.example").token == "pt2_secret"
        assert config.at("https://b.example").token is None


def test_offline_nothing_is_built(fake: FakeRegistry) -> None:
    with pytest.raises(InvalidInput, match="pt2hub is offline, and cannot have an artifact built"):
        fake.client.load(f"{MODEL}@1", offline=True, on_missing="build")


@pytest.mark.parametrize("verify", ["Always", "foo", None, True])
def test_a_way_of_checking_that_does_not_exist_is_refused(fake: FakeRegistry, verify: Any) -> None:
    with pytest.raises(InvalidInput, match="Use stat or always"):
        fake.client.pull(f"{MODEL}@1", target=V3, verify=verify, progress=False)


# -- locks -----------------------------------------------------------------------------------------------


def lock(fake: FakeRegistry, path: Path, *references: str, **options: Any) -> Any:
    return fake.client.locks.update(Project(path, None), references, upgrade=Upgrade(), **options).after


def test_a_locked_digest_gets_no_further_targets(fake: FakeRegistry, tmp_path: Path) -> None:
    found = {item.target: item.digest for item in fake.client.artifacts.resolve(f"{MODEL}@1").artifacts}
    path, reference = tmp_path / "pt2hub.lock", f"{MODEL}@{found[V4]}"
    assert lock(fake, path, reference).models[0].targets == (V4,)
    with pytest.raises(NotFound, match=f"no artifact for {V3}"):
        lock(fake, path, targets=[V3, V4])
    pulled = fake.client.pull(reference, target=V4, lock=path, progress=False)
    assert pulled.manifest_digest == found[V4]


def test_a_lock_that_pins_something_else_than_its_reference_is_refused(
    fake: FakeRegistry, tmp_path: Path
) -> None:
    path = tmp_path / "pt2hub.lock"
    lock(fake, path, f"{MODEL}@2")
    text, other = path.read_text(), digest_bytes(b"other")
    for reference in (f"{MODEL}@1", f"{MODEL}@{other}", f"{MODEL}@sha256:123456789a"):
        path.write_text(text.replace(f'"{MODEL}@2"', f'"{reference}"'))
        with pytest.raises(LockInvalid) as caught:
            fake.client.pull(reference, target=V3, lock=path, progress=False)
        assert "is not that of the reference" in {item.message for item in caught.value.details}


def test_verify_does_not_pass_over_a_target_that_is_not_locked(fake: FakeRegistry, tmp_path: Path) -> None:
    project = Project(tmp_path / "pt2hub.lock", None)
    locked = lock(fake, project.lock, f"{MODEL}@1")
    from pt2hub.client.lock.lock_verification import verify_lock

    for targets in (["torch2.13-cpu-x86_64v3"], [V3, "torch2.13-cpu-x86_64v3"]):
        with pytest.raises(NotFound, match="Nothing is locked for torch2"):
            list(verify_lock(locked, fake.client.locks.cache(), targets))
        with pytest.raises(NotFound, match="Nothing is locked for torch2"):
            list(fake.client.locks.puller(project.lock).pull_all(targets, progress=False))


@pytest.mark.parametrize(
    "text", ["schema = " + "9" * 5000, "schema = 0x" + "f" * 5000, "schema = " + "[" * 100_000]
)
def test_a_lock_of_nonsense_is_invalid(fake: FakeRegistry, tmp_path: Path, text: str) -> None:
    path = tmp_path / "pt2hub.lock"
    path.write_text(text)
    with pytest.raises(UsageError):
        fake.client.pull(f"{MODEL}@1", target=V3, lock=path, progress=False)


def test_a_lock_names_the_server_and_offline_asks_it_for_nothing(
    fake: FakeRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "pt2hub.lock"
    lock(fake, path, f"{MODEL}@1")
    for name in ("PT2HUB_URL", "PT2HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    environ = {"PT2HUB_HOME": str(tmp_path / "home"), "PT2HUB_OFFLINE": "1"}
    with Client(ClientConfig.from_environ(environ)) as client, pytest.raises(Offline):
        client.locks.update(Project(path, None), upgrade=Upgrade(every=True))


# -- bundles ---------------------------------------------------------------------------------------------


def bundle(fake: FakeRegistry, path: Path, *references: str, targets: tuple[str, ...] = ()) -> Path:
    fake.client.exports.bundle(list(references), path, targets=targets, progress=False)
    return path


def annotate(path: Path, annotations: Any) -> None:
    index = json.loads((path / "index.json").read_text())
    there = index["manifests"][0]["annotations"]
    index["manifests"][0]["annotations"] = (
        there | annotations if isinstance(annotations, dict) else annotations
    )
    (path / "index.json").write_text(json.dumps(index))


@pytest.mark.parametrize(
    "annotations",
    [
        {"io.pt2hub.reference": f"{MODEL}@5"},
        {"io.pt2hub.reference": f"{MODEL}@sha256:{'0' * 64}"},
        {"io.pt2hub.reference": "other/net@prod"},
        {"io.pt2hub.reference": "no reference"},
        {"io.pt2hub.reference": 7},
        {"io.pt2hub.reference": ["x"]},
        ["x"],
        "abc",
    ],
)
def test_a_bundle_that_calls_an_artifact_something_else_is_refused(
    fake: FakeRegistry, tmp_path: Path, elsewhere: Client, annotations: Any
) -> None:
    path = bundle(fake, tmp_path / "bundle", f"{MODEL}@1", targets=(V3,))
    annotate(path, annotations)
    with pytest.raises(CorruptArchive):
        elsewhere.exports.import_bundle(path, progress=False)
    with pytest.raises((NotFound, Offline)):
        elsewhere.pull(f"{MODEL}@5", target=V3, offline=True, progress=False)
    if annotations in (["x"], "abc"):
        with pytest.raises(CorruptArchive):
            fake.add_bundle(path)


def test_a_changed_byte_of_a_bundle_is_reported_as_damage_on_the_way(
    fake: FakeRegistry, tmp_path: Path, elsewhere: Client
) -> None:
    path = bundle(fake, tmp_path / "bundle", f"{MODEL}@1", targets=(V3,))
    largest = max((path / "blobs" / "sha256").iterdir(), key=lambda item: item.stat().st_size)
    data = bytearray(largest.read_bytes())
    data[len(data) // 2] ^= 1
    largest.write_bytes(data)
    with pytest.raises(DigestMismatch) as caught:
        elsewhere.exports.import_bundle(path, progress=False)
    assert largest.name in str(caught.value.where)
    assert "copy it again" in str(caught.value.hint)
    assert "proxy" not in str(caught.value.hint)


def test_a_folder_in_a_blobs_place_is_named(fake: FakeRegistry, tmp_path: Path, elsewhere: Client) -> None:
    path = bundle(fake, tmp_path / "bundle", f"{MODEL}@1", targets=(V3,))
    (first, *_) = elsewhere.exports.import_bundle(path, progress=False)
    stored = next(elsewhere.config.cache.rglob(first.digest.partition(":")[2]))
    stored.unlink()
    (stored / "inside").mkdir(parents=True)
    with pytest.raises(HomeUnusable) as caught:
        elsewhere.exports.import_bundle(path, progress=False)
    assert caught.value.where == str(stored)


def test_an_annotation_cannot_name_another_digest(
    fake: FakeRegistry, tmp_path: Path, elsewhere: Client
) -> None:
    path = bundle(fake, tmp_path / "bundle", f"{MODEL}@1", targets=(V3,))
    annotate(path, {"digest": "sha256:" + "0" * 64})
    (found,) = elsewhere.exports.import_bundle(path, progress=False)
    assert found.digest == fake.client.pull(f"{MODEL}@1", target=V3, progress=False).manifest_digest


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_older_bundle_changes_neither_a_newer_alias_nor_other_targets(
    fake: FakeRegistry, tmp_path: Path
) -> None:
    fake.client.aliases.move(MODEL, "prod", 1, reason="first")
    path = bundle(fake, tmp_path / "bundle.tar", f"{MODEL}@prod", targets=(V4,))
    fake.client.aliases.move(MODEL, "prod", 2, expected=1, reason="next")
    time.sleep(1.1)  # the bundle's time has whole seconds
    for reference in (f"{MODEL}@prod", f"{MODEL}@1"):
        fake.client.pull(reference, target=V3, progress=False)
    fake.client.exports.import_bundle(path, progress=False)
    pull = fake.client.pull
    assert pull(f"{MODEL}@prod", target=V3, offline=True, progress=False).config.version.number == 2
    assert pull(f"{MODEL}@1", target=V3, offline=True, progress=False).config.target.name == V3
    assert pull(f"{MODEL}@1", target=V4, offline=True, progress=False).config.target.name == V4


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_alias_of_an_old_bundle_has_the_bundles_age(
    fake: FakeRegistry, tmp_path: Path, elsewhere: Client
) -> None:
    fake.client.aliases.move(MODEL, "prod", 1, reason="first")
    path = bundle(fake, tmp_path / "bundle", f"{MODEL}@prod", targets=(V3,))
    annotate(path, {"io.pt2hub.resolved-at": f"{time.time() - 45 * 86400:.0f}"})
    elsewhere.exports.import_bundle(path, progress=False)
    with pytest.raises(ResolutionExpired, match=r"as of [12] mo ago"):
        elsewhere.pull(f"{MODEL}@prod", target=V3, offline=True, max_age=86400, progress=False)
    old = elsewhere.pull(f"{MODEL}@prod", target=V3, offline=True, max_age=60 * 86400, progress=False)
    assert old.config.version.number == 1


def test_the_environment_of_a_fake_registry_has_nothing_of_the_users(
    fake: FakeRegistry, tmp_path: Path
) -> None:
    users = {"PT2HUB_CACHE": str(tmp_path), "PT2HUB_OFFLINE": "1", "PT2HUB_SHARED_CACHE": str(tmp_path)}
    config = ClientConfig.from_environ(users | fake.environ)
    assert config.url == fake.url
    assert not config.cache.is_relative_to(tmp_path)
    assert (config.shared_cache, config.availability.offline) == (None, False)
