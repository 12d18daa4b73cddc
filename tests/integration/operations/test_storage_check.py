"""The operator's commands about damage: fsck finds each kind of planted contradiction, heal replaces damaged files."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.client.blobs.folder import BlobFolder
from pt2hub.domain.digests import digest_bytes
from pt2hub.domain.storage_check import CURES, FindingKind
from pt2hub.domain.tokens import Actor
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.container import open_container
from support.live import serving
from support.planted import Disk
from support.postgres import create_database, drop_database
from support.shell import Shell

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pt2hub.server.config import ServerConfig
    from pt2hub.server.db.embedded import EmbeddedPostgres
    from support.registry import Registry


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(root=tmp_path / "blobs")


@pytest.fixture
def operator(
    config: ServerConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    """Commands on the server's machine."""
    monkeypatch.setenv("PT2HUB_HOME", str(config.home))
    monkeypatch.setenv("PT2HUB_DATABASE_URL", str(config.database_url))
    monkeypatch.setenv("PT2HUB_STORAGE", config.storage)
    return Shell(capsys)


@pytest.fixture
def second_url(postgres: EmbeddedPostgres, migrated_template: str) -> Iterator[str]:
    """The database of another server."""
    url = create_database(postgres, template=migrated_template)
    yield url
    drop_database(postgres, url)


def findings(registry: Registry) -> set[tuple[str, str]]:
    found = registry.services.storage_check.check()
    assert sum(found.counts.values()) == len(found.findings)
    assert all(item.cure for item in found.findings)
    return {(item.kind.value, item.what) for item in found.findings}


def test_a_registry_in_order_has_no_findings(served: Registry) -> None:
    served.published()
    served.blob(b"leased and not referred to")
    check = served.services.storage_check.check()
    assert (check.findings, check.counts) == ((), {})
    assert check.objects == check.rows > 5


def test_documentation_and_what_waits_for_the_collector_are_in_order(served: Registry) -> None:
    served.published()
    for text in (b"# first", b"# second"):
        served.attach("README.md", text)
    served.sql("DELETE FROM blob_leases")
    assert findings(served) == set()
    served.services.deletion.version("vision/resnet18", 1, by=Actor("root", admin=True), reason="old")
    assert findings(served) == set()


def test_damaged_documentation_is_named_and_in_no_other_files_way(served: Registry, disk: Disk) -> None:
    served.published()
    served.attach("README.md", b"# card")
    card = StorageKey.blob(digest_bytes(b"# card"))
    manifest = StorageKey.manifest(served.sql("SELECT manifest FROM version_documentation")[0][0])
    for key in (card, manifest):
        disk.plant(key)
        assert served.services.damage.check_key(key, by="scrub")
    for outcome in served.services.heal.heal([], []):
        assert outcome.needed_by == ("vision/resnet18@1",)
        assert "pt2hub file add" in outcome.advice
    attached = served.attach("LICENSE", b"MIT")
    assert [file.name for file in attached.files] == ["LICENSE", "README.md"]
    assert [damage.digest for damage in served.services.damage.list_damaged()][:1] == [card.digest]
    served.attach("README.md", b"# card")
    assert served.services.damage.open(card)[0].key.generation == 2


def test_every_kind_of_contradiction_is_found(served: Registry, disk: Disk) -> None:
    artifact = served.published()
    view = served.services.resolve.artifact(artifact)
    planted: set[tuple[str, str]] = set()

    disk.plant(StorageKey.blob(view.code), "lose")
    planted.add(("missing_object", view.code))
    disk.plant(StorageKey.blob(view.weights), "truncate")
    planted.add(("wrong_size", view.weights))

    stray = StorageKey.blob(digest_bytes(b"stray"))
    disk.write(StorageKey.blob(served.blob(b"made the folder").digest).path, b"made the folder")
    assert disk.root
    (disk.root / stray.path).parent.mkdir(parents=True, exist_ok=True)
    disk.write(stray.path, b"stray")
    planted.add(("unknown_object", stray.digest))

    twice = StorageKey.blob(served.blob(b"stored twice").digest)
    served.sql("UPDATE blobs SET generation = 2 WHERE digest = %s", twice.digest)
    disk.write(twice.at(2).path, b"stored twice")
    planted.add(("leftover_object", twice.digest))

    damaged = StorageKey.blob(served.blob(b"damaged").digest)
    disk.plant(damaged)
    served.services.damage.check_key(damaged.at(1), by="admin")
    planted.add(("damaged", damaged.digest))

    lost = digest_bytes(b"lost")
    served.sql("INSERT INTO blob_references VALUES ('blobs', %s, 'version:1')", lost)
    planted.add(("unstored_reference", lost))

    orphan = digest_bytes(b"orphan")
    lease = "INSERT INTO blob_leases VALUES ('blobs', %s, 'api', now() + %s::interval)"
    served.sql(lease, orphan, "1 hour")
    planted.add(("orphaned_lease", orphan))
    served.sql(
        "UPDATE blob_leases SET pending_until = now() - interval '2 hours' WHERE digest = %s", damaged.digest
    )
    planted.add(("expired_lease", damaged.digest))

    referrer = view.referrers[0].digest
    served.sql("DELETE FROM referrers WHERE digest = %s", referrer)
    served.sql("DELETE FROM blob_leases WHERE digest = %s", referrer)
    planted.add(("unindexed_manifest", referrer))

    served.sql("DELETE FROM blob_references WHERE kind = 'manifests' AND digest = %s", artifact)
    served.sql("DELETE FROM blobs WHERE kind = 'manifests' AND digest = %s", artifact)
    served.sql("DELETE FROM blob_leases WHERE kind = 'manifests' AND digest = %s", artifact)
    planted |= {("missing_manifest", artifact), ("unknown_object", artifact)}

    assert findings(served) == planted


def test_the_cure_reads_blobs_that_were_checked_within_a_week() -> None:
    for kind in (FindingKind.MISSING_OBJECT, FindingKind.WRONG_SIZE):
        assert CURES[kind].startswith("pt2hub admin scrub --all, then pt2hub admin heal")


def test_what_is_written_between_the_two_listings_is_no_finding(
    served: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.blob(b"before")
    storage = served.services.storage
    objects = type(storage).objects

    def late(self: Any, kind: Any) -> Any:
        found = list(objects(self, kind))
        if kind == "blobs":
            served.blob(b"written after the objects were listed")
        return iter(found)

    monkeypatch.setattr(type(storage), "objects", late)
    assert findings(served) == set()


def test_commands_say_what_is_damaged_and_heal_it_from_a_cache(
    served: Registry, disk: Disk, operator: Shell, tmp_path: Path
) -> None:
    artifact = served.published()
    view = served.services.resolve.artifact(artifact)
    cache = BlobFolder(tmp_path / "cache")
    cache.put(view.code, b"code")
    cache.put(view.weights, b"not the weights")
    assert operator("admin", "scrub", "--all").code == 0
    assert operator("admin", "fsck").out.endswith("Nothing is wrong.\n")
    for digest in (view.code, view.weights):
        disk.plant(StorageKey.blob(digest), at=0)

    code, report = operator.json("admin", "scrub", "--all", "--rate", "1GiB")
    assert code == 1
    assert {item["digest"] for item in report["damaged"]} == {view.code, view.weights}
    code, check = operator.json("admin", "fsck")
    assert (code, check["counts"]) == (1, {"damaged": 2})

    told = operator("admin", "heal")
    assert told.code == 1
    assert "needed by vision/resnet18@1 for" in told.out
    assert "otherwise yank the version and publish it anew" in told.out
    code, healed = operator.json("admin", "heal", "--from-cache", str(tmp_path / "cache"))
    assert code == 1
    states = {item["digest"]: (item["state"], item["source"]) for item in healed["blobs"]}
    assert states == {view.code: ("healed", str(tmp_path / "cache")), view.weights: ("damaged", None)}
    assert served.services.damage.open(StorageKey.blob(view.code))[0].key.generation == 2
    assert b"".join(served.services.storage.read(StorageKey.blob(view.code))) == b"code"

    (tmp_path / "file").write_bytes(b"weights")
    (tmp_path / "cache" / "blobs" / "sha256" / view.weights.removeprefix("sha256:")).unlink()
    cache.put(view.weights, b"weights")
    told = operator("admin", "heal", view.weights, "--from-cache", str(tmp_path / "cache"))
    assert told.code == 0
    assert operator("admin", "heal").out == "Nothing is damaged.\n"
    assert operator("admin", "heal", view.weights).out.split()[1] == "intact"
    assert operator("admin", "fsck").code == 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("scrub", "--rate", "fast"), "Invalid rate"),
        (("heal", "sha256:1"), "Invalid digest"),
        (("heal", "--from-cache", "/nowhere"), "not a cache"),
        (("heal", f"sha256:{'0' * 64}"), "never had a blob"),
    ],
)
def test_wrong_arguments_are_told(
    served: Registry, operator: Shell, args: tuple[str, ...], said: str
) -> None:
    served.blob(b"x")
    told = operator("admin", *args)
    assert told.code != 0
    assert said in told.err


def test_a_mirror_heals_blobs_and_manifests(
    served: Registry,
    disk: Disk,
    operator: Shell,
    config: ServerConfig,
    second_url: str,
    tmp_path: Path,
) -> None:
    artifact = served.published()
    view = served.services.resolve.artifact(artifact)
    shutil.copytree(tmp_path / "blobs", tmp_path / "mirror")
    elsewhere = replace(config, storage=str(tmp_path / "mirror"), database_url=second_url)
    config, manifest = StorageKey.blob(view.config_digest), StorageKey.manifest(artifact)
    for key in (config, manifest):
        disk.plant(key)
    assert len(served.services.scrub.run(everything=True).damaged) == 2
    with open_container(elsewhere, database_url=second_url) as mirror, serving(mirror, elsewhere) as address:
        mirror.reindex.reindex()
        told = operator("admin", "heal", "--from-server", address)
    assert (told.code, told.out.count(f"healed from {address}")) == (0, 2)
    assert served.services.resolve.artifact(artifact).damaged == ()


def test_a_reindex_names_files_of_another_length_and_missing_ones(
    served: Registry, disk: Disk, operator: Shell
) -> None:
    view = served.services.resolve.artifact(served.published())
    disk.plant(StorageKey.blob(view.weights), "truncate")
    disk.plant(StorageKey.blob(view.code), "lose")
    served.sql("DELETE FROM blob_references")
    served.sql("DELETE FROM blobs")
    told = operator("admin", "reindex")
    assert f"damaged: {view.weights}: The stored blob is damaged: its bytes have" in told.out
    assert f"damaged: {view.code}: The blob is damaged: it is missing from the storage." in told.out
    assert "pt2hub admin heal" in told.out
    assert "of 1 artifact, and the journal." in told.out
    served.sql("UPDATE api_tokens SET revoked_at = now()")
    told = operator("admin", "reindex")
    assert "No token is valid: tokens and sessions are not in the storage." in told.out
    assert "Create one: pt2hub admin token --admin" in told.out
