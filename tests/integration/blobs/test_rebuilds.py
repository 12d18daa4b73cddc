"""Rebuilds: damaged files of an artifact are built again, and replaced only by the same bytes."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

from pt2hub import archive
from pt2hub.domain.artifacts import CODE_TYPE, WEIGHTS_TYPE
from pt2hub.domain.audit import Action, AuditFilter
from pt2hub.domain.digests import Digest, digest_bytes, digest_file
from pt2hub.domain.tokens import SERVER
from pt2hub.errors import RebuildDiffers
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.blobs.damage import DamageStore
from pt2hub.server.services.blobs.documents import read_manifest
from pt2hub_workers.builds import noop_toolchain
from pt2hub_workers.builds.noop_toolchain import NoopToolchain
from support.packages import safetensors
from support.planted import Disk

if TYPE_CHECKING:
    from pathlib import Path

    from flask.testing import FlaskClient

    from pt2hub.domain.damage import HealOutcome
    from support.attempts import AttemptBench
    from support.registry import Registry
    from support.shell import Shell


class Rebuilding:
    """A published version, whose files a test damages and heals."""

    def __init__(self, attempts: AttemptBench, **fields: Any) -> None:
        self.bench, self.services = attempts, attempts.services
        self.version = attempts.submit(**fields)
        attempts.attempt(self.version)
        artifact = self.services.builds.view(self.version.builds[0].id).artifact
        assert artifact is not None
        self.artifact = artifact
        self.before = self.readiness()

    def layer(self, media_type: str) -> Digest:
        found = read_manifest(self.services.storage, self.artifact).layer(media_type)
        assert found is not None
        return found.digest

    def damage(self, digest: Digest) -> None:
        key = StorageKey.blob(digest)
        with self.services._sessions.begin() as session:
            row = DamageStore(session).row(key)
        assert row is not None
        path = self.bench.scratch.parent / "blobs" / row.key.path
        path.chmod(0o600)
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        assert self.services.damage.check_key(row.key, by="scrub")

    def heal(self, *digests: Digest, rebuild: bool = True) -> list[HealOutcome]:
        return list(self.services.heal.heal(digests, [], rebuild=rebuild, by=SERVER))

    def state(self, digest: Digest) -> str:
        with self.services._sessions.begin() as session:
            row = DamageStore(session).row(StorageKey.blob(digest))
        return row.state if row else ""

    def readiness(self) -> tuple[Any, ...]:
        """Everything about the version, its build and its artifact that a rebuild must leave as it is."""
        with self.services._sessions.begin() as session:
            rows = [
                session.execute(text(f"SELECT * FROM {table} ORDER BY 1")).all()  # of constants
                for table in ("versions", "artifacts", "aliases", "blob_references")
            ]
        (version,) = self.services.catalog.versions(self.version.model).versions
        return replace(version, damaged=()), self.services.builds.view(self.version.builds[0].id), rows


def other_code(self: Any, *_: Any) -> Path:
    """What a compiler does that does not write the same bytes twice."""
    with self._parent.step("compile"):
        code: Path = self._out / "code.zip"
        archive.write_zip(
            code, {"model/archive_format": b"pt2", "model/note": secrets.token_bytes(8)}.items()
        )
        return code


def test_a_rebuild_that_writes_the_same_bytes_replaces_damaged_code(attempts: AttemptBench) -> None:
    made = Rebuilding(attempts)
    code = made.layer(CODE_TYPE)
    made.damage(code)
    (outcome,) = made.heal()
    assert (outcome.digest, outcome.state) == (code, "damaged")
    assert f"pt2hub logs -f {outcome.rebuild}" in outcome.advice
    assert [item.rebuild for item in made.heal()] == [outcome.rebuild]  # joins the queued one
    assert outcome.rebuild is not None
    view = made.services.builds.view(outcome.rebuild)
    assert (view.kind, view.rebuilds, view.state) == ("rebuild", made.artifact, "queued")

    attempts.run(outcome.rebuild, NoopToolchain(attempts.scratch))

    view = made.services.builds.view(outcome.rebuild)
    assert (view.state, view.artifact) == ("succeeded", None)
    assert {step.name for step in view.steps} >= {"compile", "verify", "upload", "publish"}
    assert made.state(code) == "stored"
    fetched = attempts.scratch / "code"
    made.services.storage.fetch(StorageKey.blob(code), fetched)
    assert digest_file(fetched) == code
    assert made.readiness() == made.before
    assert [item.state for item in made.heal(code)] == ["intact"]
    entries = made.services.audit_log.entries(AuditFilter(action=Action.BUILD_REBUILD)).entries
    assert [(entry.resource, entry.change) for entry in entries] == [
        (outcome.rebuild, {"artifact": made.artifact})
    ]


def test_weights_that_the_build_made_are_made_again_with_the_code(attempts: AttemptBench) -> None:
    made = Rebuilding(attempts)
    code, weights = made.layer(CODE_TYPE), made.layer(WEIGHTS_TYPE)
    made.damage(code)
    made.damage(weights)
    outcomes = made.heal()
    (build,) = {item.rebuild for item in outcomes}
    assert {item.digest for item in outcomes} == {code, weights}
    assert build is not None
    attempts.run(build, NoopToolchain(attempts.scratch))
    assert (made.state(code), made.state(weights)) == ("stored", "stored")
    assert made.heal() == []
    assert made.readiness() == made.before


def test_a_rebuild_with_other_bytes_replaces_nothing_and_names_them(
    attempts: AttemptBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Rebuilding(attempts)
    code = made.layer(CODE_TYPE)
    made.damage(code)
    (outcome,) = made.heal()
    assert outcome.rebuild is not None
    monkeypatch.setattr(noop_toolchain._Run, "_code", other_code)
    with pytest.raises(
        RebuildDiffers, match=f"The rebuild made other bytes: code sha256:.* instead of {code}"
    ) as caught:
        attempts.run(outcome.rebuild, NoopToolchain(attempts.scratch))
    assert caught.value.context["code"]["wanted"] == code
    claim = made.services.builds.view(outcome.rebuild)
    assert claim.state == "running"  # the runner records the error of an attempt
    assert made.state(code) == "damaged"
    with made.services._sessions.begin() as session:
        row = DamageStore(session).row(StorageKey.blob(Digest(caught.value.context["code"]["made"])))
    assert row is None  # what nobody needs is not even stored


def test_heal_says_what_became_of_the_last_rebuild(attempts: AttemptBench) -> None:
    made = Rebuilding(attempts)
    code = made.layer(CODE_TYPE)
    made.damage(code)
    (plain,) = made.heal(rebuild=False)
    assert (plain.rebuild, "--rebuild" in plain.advice) == (None, True)
    (outcome,) = made.heal()
    assert outcome.rebuild is not None
    claim = made.services.builds.claim(outcome.rebuild, "worker")
    assert claim is not None
    made.services.builds.fail(claim, RebuildDiffers("The rebuild made other bytes: code a instead of b"))
    (told,) = made.heal(code, rebuild=False)
    assert told.rebuild == outcome.rebuild
    assert told.advice.startswith(f"Rebuild {outcome.rebuild} failed: The rebuild made other bytes: code a")
    (again,) = made.heal(code)
    assert again.rebuild not in (None, outcome.rebuild)
    assert made.readiness() == made.before


def test_uploaded_weights_are_not_rebuilt_but_uploaded_again(attempts: AttemptBench) -> None:
    weights = attempts.store(safetensors({"w": ("F32", (4,), b"uploaded weight.")}))
    made = Rebuilding(attempts, weights=weights)
    made.damage(Digest(weights))
    (outcome,) = made.heal()
    assert (outcome.state, outcome.rebuild) == ("damaged", None)
    assert "Publish the same spec with the same files again" in outcome.advice


def test_what_is_healed_meanwhile_is_not_built(attempts: AttemptBench) -> None:
    made = Rebuilding(attempts)
    code = made.layer(CODE_TYPE)
    copy = attempts.scratch / "copy"
    made.services.storage.fetch(StorageKey.blob(code), copy)
    made.damage(code)
    (outcome,) = made.heal()
    made.services.blobs.write(StorageKey.blob(code), [copy.read_bytes()], holder="a client")
    assert outcome.rebuild is not None
    attempts.run(outcome.rebuild, NoopToolchain(attempts.scratch))
    view = made.services.builds.view(outcome.rebuild)
    assert (view.state, [step.name for step in view.steps]) == ("succeeded", ["publish"])


def test_the_command_requests_it_and_page_and_command_say_what_it_made(
    shell: Shell, served: Registry, web: FlaskClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PT2HUB_DATABASE_URL", served.database_url)
    monkeypatch.setenv("PT2HUB_STORAGE", str(tmp_path / "blobs"))
    artifact = served.published()
    code = StorageKey.blob(digest_bytes(b"code"))
    Disk(root=tmp_path / "blobs").plant(code.at(1))
    asked = shell("admin", "heal", code.digest, "--rebuild")
    ((build,),) = served.sql("SELECT id FROM builds WHERE kind = 'rebuild'")
    assert (asked.code, f"Build {build} builds it again: pt2hub logs -f {build}" in asked.out) == (1, True)
    assert f"rebuilds {artifact}, whose files are damaged" in str(served.services.builds.view(build))

    claim = served.claim(build)
    assert claim.kind == "rebuild"
    served.services.builds.fail(
        claim, RebuildDiffers(f"The rebuild made other bytes: code a instead of {code.digest}")
    )
    page = web.get(f"/builds/{build}").text
    assert "The rebuild made other bytes" in page
    assert "<h1>Rebuild of " in page
    assert f"/artifacts/{artifact}" in page
    assert "rebuild" in web.get("/builds?kind=rebuild").text
    told = shell("admin", "heal")
    assert (
        f"Rebuild {build} failed: The rebuild made other bytes: code a instead of {code.digest}" in told.out
    )
    assert served.sql("SELECT state FROM builds WHERE kind = 'build'") == [("succeeded",)]
