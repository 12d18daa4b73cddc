"""Artifacts whose stored files are damaged: shown as such, and never selected over an intact one."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pt2hub.cli.artifacts.show import damaged_text
from pt2hub.client.artifacts.selection import parse_device, select_artifact
from pt2hub.domain.targets import flags_of_level
from pt2hub.errors import Incompatible
from pt2hub.server.blobs.keys import StorageKey
from support.damaged import spoil
from support.registry import V3, V4

if TYPE_CHECKING:
    from pathlib import Path

    from flask.testing import FlaskClient

    from pt2hub.domain.artifacts import ArtifactConfig
    from pt2hub.domain.digests import Digest
    from support.registry import Registry

MODEL = "vision/resnet18"


def published(registry: Registry) -> tuple[Digest, Digest]:
    """A version with one artifact for each of two targets."""
    version = registry.submit(targets=[V4, V3])
    found = []
    for number, build in enumerate(version.builds):
        registry.worker(f"w{number}", build.target)
        claim = registry.claim(build.id, f"w{number}")
        publication = registry.publication(claim, code=build.target.encode())
        registry.services.builds.publish(claim, publication)
        found.append(publication.manifest.digest)
    return found[0], found[1]


def test_resolved_artifacts_say_whether_they_are_damaged(registry: Registry) -> None:
    first, second = published(registry)
    resolve = registry.services.resolve
    assert [item.damaged for item in resolve.resolve(MODEL).artifacts] == [False, False]
    spoil(registry, StorageKey.blob(resolve.artifact(first).code))
    for reference in (MODEL, f"{MODEL}@1"):
        assert [item.damaged for item in resolve.resolve(reference).artifacts] == [True, False]
    assert resolve.resolve(f"{MODEL}@{first}").artifacts[0].damaged
    assert not resolve.resolve(f"{MODEL}@{second}").artifacts[0].damaged
    spoil(registry, StorageKey.manifest(second))
    assert [item.damaged for item in resolve.resolve(MODEL).artifacts] == [True, True]


def test_damage_of_a_referrer_is_listed_and_does_not_make_the_artifact_damaged(registry: Registry) -> None:
    first, _ = published(registry)
    view = registry.services.resolve.artifact(first)
    spoil(registry, StorageKey.manifest(view.referrers[0].digest))
    found = registry.services.resolve.artifact(first)
    assert [(item.part, item.digest) for item in found.damaged] == [("referrer", view.referrers[0].digest)]
    assert not registry.services.resolve.resolve(MODEL).artifacts[0].damaged


def test_pages_say_that_an_artifact_cannot_be_pulled_only_where_that_is_so(
    web: FlaskClient, served: Registry
) -> None:
    digest = served.published(served.submit())
    view = served.services.resolve.artifact(digest)
    artifact, version = f"/artifacts/{digest}", f"/models/{MODEL}/versions/1"

    def texts() -> tuple[str, str]:
        return (web.get(artifact).get_data(as_text=True), web.get(version).get_data(as_text=True))

    spoil(served, StorageKey.manifest(view.referrers[0].digest))
    of_artifact, of_version = texts()
    assert "It can be pulled, but a document about it is damaged on the server." in of_artifact
    assert "Download model.pt2" in of_artifact
    assert "cannot be pulled" not in of_artifact + of_version
    spoil(served, StorageKey.blob(view.code))
    of_artifact, of_version = texts()
    assert "Damaged on the server: it cannot be pulled." in of_artifact
    assert "it has other bytes, found" in of_artifact
    assert "Download model.pt2" not in of_artifact, "it leads to an error"
    assert '<span class="state state-failed">damaged</span></h1>' in of_version


def test_a_single_file_of_missing_weights_is_damaged_and_not_unknown(
    web: FlaskClient, served: Registry
) -> None:
    digest = served.published(served.submit())
    weights = StorageKey.blob(served.services.resolve.artifact(digest).weights)
    served.services.storage.remove([weights.at(1)])
    answer = web.get(f"/api/v1/artifacts/{digest}/model.pt2")
    assert answer.get_json()["code"] == "blob_damaged"
    assert "pt2hub admin heal" in answer.get_json()["hint"]


def test_damage_of_an_attached_file_holds_up_a_move_and_that_of_a_referrer_does_not(
    registry: Registry,
) -> None:
    card = registry.blob(b"# Card").digest
    digest = registry.published(registry.submit(files={"README.md": card}))
    view = registry.services.resolve.artifact(digest)
    spoil(registry, StorageKey.manifest(view.referrers[0].digest))
    preview = registry.services.aliases.preview
    assert preview(MODEL, "prod", 1, by=None).allowed
    spoil(registry, StorageKey.blob(card))
    found = registry.services.resolve.artifact(digest)
    assert {item.part for item in found.damaged} == {"file", "referrer"}
    assert damaged_text(found) == "damaged on the server: file"
    (check,) = preview(MODEL, "prod", 1, by=None).checks
    assert check.found == "damaged on the server: file"


def test_a_damaged_artifact_is_not_selected_and_the_reason_is_told(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = published(registry)
    services = registry.services
    spoil(registry, StorageKey.blob(services.resolve.artifact(first).code))
    resolved = services.resolve.resolve(MODEL)

    def read_config(digest: Digest) -> ArtifactConfig:
        assert digest == second, "nothing of a damaged one is read"
        from pt2hub.server.services.blobs.documents import read_config, read_manifest

        return read_config(services.storage, read_manifest(services.storage, digest))

    monkeypatch.setenv("PT2HUB_CPU_LEVEL", "x86_64_v3")
    both = replace(resolved, artifacts=(resolved.artifacts[0],))
    with pytest.raises(Incompatible, match="files: needs intact files, has damaged ones on the server"):
        select_artifact(both, read_config, parse_device("cpu"))
    with suppress(Incompatible):  # of torch here
        assert select_artifact(resolved, read_config, parse_device("cpu"))[0].digest == second
    flags = sorted(flags_of_level("x86_64_v4"))
    host = {"os": "linux", "machine": "x86_64", "torch": "2.13", "cpu_flags": flags}
    check = services.host_checks.check(MODEL, host)
    states = {item.target: item.reasons for item in check.artifacts}
    assert states[V4] == ("files: needs intact files, has damaged ones on the server",)
    assert check.selected != first


def test_pages_show_damage_also_where_the_config_is_gone(
    web: FlaskClient, served: Registry, tmp_path: Path
) -> None:
    digest = served.published()
    view = served.services.resolve.artifact(digest)
    config = tmp_path / "blobs" / StorageKey.blob(view.config_digest).path
    config.chmod(0o600)
    config.write_bytes(b"x" + config.read_bytes()[1:])

    shown = web.get(f"/api/v1/artifacts/{digest}").get_json()

    assert [(item["part"], item["problem"]) for item in shown["damaged"]] == [("config", "digest")]
    assert shown["config"] == {}
    version = web.get(f"/models/{MODEL}/versions/1").get_data(as_text=True)
    assert "damaged</span>" in version
    page = web.get(f"/artifacts/{digest}")
    assert page.status_code == 200
    assert "Damaged on the server" in page.get_data(as_text=True)
