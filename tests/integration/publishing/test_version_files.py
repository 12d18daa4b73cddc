"""Files of versions on the server: published, changed later, and back from the storage alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.artifacts import DOCUMENTATION_TYPE
from pt2hub.domain.attached_files.files import files_of
from pt2hub.domain.digests import Digest, digest_bytes
from pt2hub.domain.limits import Limits
from pt2hub.domain.reading import EVERYTHING, Readable
from pt2hub.domain.tokens import Actor
from pt2hub.errors import (
    DuplicateFile,
    EmptyFile,
    FileFixed,
    InvalidFileName,
    InvalidInput,
    InvalidMediaType,
    NotFound,
    QuotaExceeded,
    TooManyFiles,
)
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.reading import limit_reading
from pt2hub.server.services.blobs.documents import read_manifest
from pt2hub.server.services.publishing.version_files import NewFile, VersionFileService
from support.planted import Disk
from support.registry import V3, V4, a_spec

if TYPE_CHECKING:
    from pathlib import Path

    from flask.testing import FlaskClient

    from pt2hub.wire.files import FileView
    from pt2hub.wire.responses import VersionView
    from support.registry import Registry

MODEL = "vision/resnet18"
ADA = Actor("ada")
TABLES = """models, versions, version_documentation, targets, workers, builds, build_steps, artifacts, referrers,
    archive_members, autotune_choices, environments, measurements, blobs, blob_references, blob_leases"""


def submit(registry: Registry, files: dict[str, bytes], **changes: Any) -> VersionView:
    """A version with these files."""
    return registry.submit(
        files={name: registry.blob(data).digest for name, data in files.items()}, **changes
    )


def published(registry: Registry, **changes: Any) -> tuple[VersionView, Digest]:
    """A version with a tokenizer and a card, and its artifact."""
    view = submit(registry, {"tokenizer.json": b"{}", "README.md": b"# A net"}, **changes)
    return view, registry.published(view)


def listed(registry: Registry, number: int = 1) -> dict[str, FileView]:
    return {item.name: item for item in registry.services.version_files.files(MODEL, number).files}


def put(registry: Registry, name: str, data: bytes, **told: Any) -> None:
    new = NewFile(name, registry.blob(data).digest, **told)
    registry.services.version_files.put(MODEL, 1, new, by=ADA)


def owners(registry: Registry, data: bytes) -> set[str]:
    rows = registry.sql("SELECT owner FROM blob_references WHERE digest = %s", digest_bytes(data))
    return {owner for (owner,) in rows}


# -- at the publication ------------------------------------------------------------------------------------------------


def test_every_artifact_has_the_files_of_the_publication_as_layers(registry: Registry) -> None:
    view = submit(registry, {"tokenizer.json": b"{}", "README.md": b"# A net"}, targets=[V4, V3])
    assert [(item.name, item.kind, item.size, item.pinned) for item in view.files] == [
        ("README.md", "card", 7, True),
        ("tokenizer.json", "tokenizer", 2, True),
    ]
    assert set(view.spec["files"]) == {"tokenizer.json"}
    manifests = []
    for build in view.builds:
        claim = registry.claim(build.id)
        publication = registry.publication(claim)
        registry.services.builds.publish(claim, publication)
        manifests.append(read_manifest(registry.services.storage, publication.manifest.digest))
    for manifest in manifests:
        assert [item.name for item in files_of(manifest)] == ["README.md", "tokenizer.json"]
        assert f"artifact:{manifest.digest}" in owners(registry, b"{}")
    assert "version:1" in owners(registry, b"# A net")


def test_a_card_whose_name_collides_is_refused_before_anything_is_published(registry: Registry) -> None:
    submit(registry, {"tokenizer.json": b"{}"}, targets=[V4])
    put(registry, "readme.md", b"# Another name on some systems only")
    files = {"tokenizer.json": b"{}", "README.md": b"# A net"}
    before = registry.sql("SELECT count(*) FROM builds"), registry.sql("SELECT count(*) FROM audit_log")
    with pytest.raises(DuplicateFile) as refused:
        submit(registry, files, targets=[V4, V3], labels={"owner": "search"})
    assert before == (
        registry.sql("SELECT count(*) FROM builds"),
        registry.sql("SELECT count(*) FROM audit_log"),
    )
    assert registry.services.publish.version(MODEL, 1).labels == ()
    spec = a_spec(files={name: digest_bytes(data) for name, data in files.items()}, targets=[V4])
    with pytest.raises(DuplicateFile) as previewed:
        registry.services.publish.check(spec)
    assert str(previewed.value) == str(refused.value)


def test_another_tokenizer_is_another_version_and_another_card_is_not(registry: Registry) -> None:
    first = submit(registry, {"tokenizer.json": b"{}", "README.md": b"# A net"})
    registry.blob(b"# A better text")
    spec = a_spec(
        files={"tokenizer.json": digest_bytes(b"{}"), "README.md": digest_bytes(b"# A better text")}
    )
    preview = registry.services.publish.check(spec)
    assert (preview.created, preview.documentation) == (False, ("README.md",))
    again = submit(registry, {"tokenizer.json": b"{}", "README.md": b"# A better text"})
    assert (again.created, again.number) == (False, 1)
    card = next(item for item in again.files if item.name == "README.md")
    assert (card.digest, card.pinned) == (digest_bytes(b"# A better text"), False)
    assert again.pins == first.pins, "what artifacts have stays"
    assert submit(registry, {"tokenizer.json": b"[]"}).number == 2
    assert registry.submit().number == 3, "none at all"
    assert set(listed(registry)) == {"README.md", "tokenizer.json"}
    added = registry.services.publish.add_target(MODEL, 1, V3, by=ADA)
    assert (added.number, len(added.files), added.files) == (1, 2, again.files)


def test_an_empty_file_or_one_that_was_not_uploaded_is_refused(registry: Registry) -> None:
    with pytest.raises(EmptyFile, match=r"tokenizer\.json"):
        submit(registry, {"tokenizer.json": b""})
    with pytest.raises(NotFound, match="not uploaded") as caught:
        registry.submit(files={"labels.txt": digest_bytes(b"elsewhere")})
    assert caught.value.where == "files.labels.txt"
    assert registry.sql("SELECT count(*) FROM versions") == [(0,)]


# -- afterwards --------------------------------------------------------------------------------------------------------


def test_documentation_is_added_replaced_and_removed_and_artifacts_stay(registry: Registry) -> None:
    _, digest = published(registry)
    before = registry.services.resolve.manifest(MODEL, digest)
    put(registry, "LICENSE", b"MIT")
    put(registry, "README.md", b"# Better")
    put(registry, "notes.bin", b"notes", kind="document", media_type="Text/Plain")
    files = listed(registry)
    assert {name: (item.kind, item.media_type, item.pinned) for name, item in files.items()} == {
        "LICENSE": ("license", "text/plain", False),
        "README.md": ("card", "text/markdown", False),
        "notes.bin": ("document", "text/plain", False),
        "tokenizer.json": ("tokenizer", "application/json", True),
    }
    found = registry.services.version_files.files(MODEL, 1)
    assert (str(found.changed_by), bool(found.changed_at)) == ("ada", True)
    put(registry, "README.md", b"# A net")
    assert listed(registry)["README.md"].pinned, "as it was published"
    assert owners(registry, b"# Better") == set(), "nothing needs it any more"
    assert owners(registry, b"MIT") == {"documentation:1"}
    for name in ("README.md", "LICENSE", "notes.bin"):
        registry.services.version_files.remove(MODEL, 1, name, by=ADA)
    assert set(listed(registry)) == {"tokenizer.json"}
    assert owners(registry, b"# A net") == {"version:1", f"artifact:{digest}"}
    assert registry.services.resolve.manifest(MODEL, digest) == before


@pytest.mark.parametrize(
    ("name", "data", "told", "error"),
    [
        ("tokenizer.json", b"[]", {}, FileFixed),
        ("tokenizer.json", b"[]", {"kind": "document"}, FileFixed),
        ("labels.txt", b"cat", {}, FileFixed),
        ("README.md", b"x", {"kind": "calibration"}, FileFixed),
        ("Tokenizer.JSON", b"x", {"kind": "document"}, DuplicateFile),
        ("NUL.md", b"x", {}, InvalidFileName),
        ("README.md", b"", {}, EmptyFile),
        ("README.md", b"x", {"media_type": "markdown"}, InvalidMediaType),
        ("README.md", b"x", {"kind": "novel"}, InvalidInput),
    ],
)
def test_what_cannot_be_added_later_is_refused_and_nothing_changes(
    registry: Registry, name: str, data: bytes, told: dict[str, str], error: type[Exception]
) -> None:
    published(registry)
    before = listed(registry)
    with pytest.raises(error):
        put(registry, name, data, **told)
    assert listed(registry) == before


def test_there_are_64_files_at_most_also_later(registry: Registry) -> None:
    names = {f"{number}.md": digest_bytes(b"# A net") for number in range(63)}
    registry.blob(b"# A net")
    registry.submit(files=names | {"tokenizer.json": digest_bytes(b"# A net")})
    put(registry, "0.md", b"# Another net")
    with pytest.raises(TooManyFiles):
        put(registry, "64.md", b"# A net")


def test_unknown_files_are_not_found_and_fixed_ones_stay(registry: Registry) -> None:
    published(registry)
    service = registry.services.version_files
    with pytest.raises(NotFound, match="not uploaded"):
        service.put(MODEL, 1, NewFile("LICENSE", digest_bytes(b"elsewhere")), by=ADA)
    with pytest.raises(NotFound) as caught:
        service.remove(MODEL, 1, "README.MD", by=ADA)
    assert caught.value.hint == "Did you mean README.md?"
    with pytest.raises(FileFixed):
        service.remove(MODEL, 1, "tokenizer.json", by=ADA)
    with pytest.raises(NotFound):
        service.files(MODEL, 2)


def test_changes_at_the_same_time_are_all_kept(registry: Registry) -> None:
    registry.submit()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: put(registry, f"{number}.md", b"# A net"), range(4)))
    assert len(listed(registry)) == 4
    assert registry.sql("SELECT revision FROM version_documentation") == [(4,)]


def test_a_team_at_its_limit_replaces_by_shorter_texts_only(registry: Registry) -> None:
    published(registry)
    services = registry.services
    limited = VersionFileService(
        services._sessions, services.storage, services.blobs, Limits(bytes_per_team=1)
    )
    new = {length: NewFile("README.md", registry.blob(b"#" * length).digest) for length in (5, 50)}
    with pytest.raises(QuotaExceeded):
        limited.put(MODEL, 1, new[50], by=ADA)
    assert listed(registry)["README.md"].size == 7
    limited.put(MODEL, 1, new[5], by=ADA)
    assert listed(registry)["README.md"].size == 5


def test_the_bytes_belong_to_the_team_and_are_read_with_its_model(registry: Registry) -> None:
    published(registry)
    before = registry.services.usage.view().teams[0].stored_bytes
    put(registry, "LICENSE", b"MIT licence")
    after = registry.services.usage.view().teams[0].stored_bytes
    assert after - before > len(b"MIT licence"), "with the manifest"
    try:
        for pattern, is_read in {"vision/*": True, "nlp/*": False}.items():
            limit_reading(Readable((pattern,)))
            assert registry.services.visibility.blob(digest_bytes(b"MIT licence")) is is_read
    finally:
        limit_reading(EVERYTHING)


# -- from the storage --------------------------------------------------------------------------------------------------


def test_files_and_later_documentation_come_back_from_the_storage(registry: Registry) -> None:
    view, digest = published(registry)
    put(registry, "README.md", b"# Better")
    put(registry, "LICENSE", b"MIT")
    before = registry.services.version_files.files(MODEL, 1)
    referred = owners(registry, b"MIT") | owners(registry, b"# Better")
    registry.sql(f"TRUNCATE {TABLES} CASCADE")

    report = registry.services.reindex.reindex()

    assert report["unreadable"] == {}
    after = registry.services.version_files.files(MODEL, 1)
    assert (after.files, after.changed_by) == (before.files, before.changed_by)
    assert owners(registry, b"MIT") | owners(registry, b"# Better") == {
        owner.replace(":1", f":{registry.sql('SELECT id FROM versions')[0][0]}") for owner in referred
    }
    assert registry.services.publish.version(MODEL, 1).pins == view.pins
    assert f"artifact:{digest}" in owners(registry, b"{}")
    put(registry, "LICENSE", b"BSD")
    assert registry.services.reindex.reindex()["unreadable"] == {}
    assert listed(registry)["LICENSE"].digest == digest_bytes(b"BSD"), "an older manifest changes nothing"


def test_damaged_documentation_is_reported_and_the_rest_restored(registry: Registry) -> None:
    published(registry)
    put(registry, "LICENSE", b"MIT")
    manifests = [
        read_manifest(registry.services.storage, key.digest)
        for key in registry.services.storage.keys("manifests")
    ]
    good = next(item for item in manifests if item.artifactType == DOCUMENTATION_TYPE)
    bad = registry.manifest(
        type(good)(
            good.artifactType,
            good.config,
            (*good.layers, registry.blob(b"x", "application/x")),
            annotations=good.annotations | {"io.pt2hub.documentation.revision": "-1"},
        )
    )
    registry.sql(f"TRUNCATE {TABLES} CASCADE")
    report = registry.services.reindex.reindex()
    assert set(report["unreadable"]) == {bad.digest}
    assert set(listed(registry)) == {"LICENSE", "README.md", "tokenizer.json"}


# -- pages and downloads -----------------------------------------------------------------------------------------------


def test_a_file_that_lies_about_its_type_is_saved_and_never_shown(
    api: FlaskClient, container: Any, bearer: dict[str, str]
) -> None:
    from support.registry import Registry as Handles  # the services behind the API have another storage

    served = Handles(container, container.database_url)
    digest = served.blob(b"<script>alert(1)</script>").digest
    told = {"digest": digest, "media_type": "text/html", "kind": "card"}
    served.submit(files={'größe "1".md'.replace('"', "'"): told})
    url = f"/api/v1/models/{MODEL}/versions/1/files"
    name = api.get(url).get_json()["files"][0]["name"]
    found = api.get(f"{url}/{name}")
    assert found.data == b"<script>alert(1)</script>"
    assert found.headers["Content-Type"] == "application/octet-stream"
    assert found.headers["X-Content-Type-Options"] == "nosniff"
    assert found.headers["Content-Disposition"].startswith("attachment; filename=")
    assert "UTF-8''gr%C3%B6%C3%9Fe" in found.headers["Content-Disposition"]
    assert "sandbox" in found.headers["Content-Security-Policy"]
    assert api.get(f"{url}/{name}", headers={"Range": "bytes=0-7"}).data == b"<script>"
    assert api.get(f"{url}/none").get_json()["code"] == "not_found"
    assert api.put(f"{url}/..%2fx", json={"digest": digest}, headers=bearer).status_code in {404, 405}
    refused = api.put(f"{url}/com1.md", json={"digest": digest}, headers=bearer)
    assert (refused.status_code, refused.get_json()["code"]) == (422, "invalid_file_name")
    fixed = api.put(f"{url}/labels.txt", json={"digest": digest}, headers=bearer)
    assert (fixed.status_code, fixed.get_json()["code"]) == (409, "file_fixed")
    assert StorageKey.blob(digest).content_type == "application/octet-stream"


def test_a_damaged_file_is_not_served(served: Registry, web: FlaskClient, tmp_path: Path) -> None:
    data = b"{} with a byte that will flip"
    submit(served, {"tokenizer.json": data, "README.md": b"# A net"})
    url, disk = f"/api/v1/models/{MODEL}/versions/1/files/tokenizer.json", Disk(root=tmp_path / "blobs")
    assert web.get(url).data == data
    disk.plant(StorageKey.blob(digest_bytes(data)))
    for _ in range(2):  # found by reading, then known
        answer = web.get(url)
        assert (answer.status_code, answer.get_json()["code"]) == (500, "blob_damaged")


def test_a_version_page_that_meets_a_damaged_card_says_so_and_records_it(
    served: Registry, web: FlaskClient, tmp_path: Path
) -> None:
    data = b"# A net"
    submit(served, {"README.md": data})
    page, disk = f"/models/{MODEL}/versions/1", Disk(root=tmp_path / "blobs")
    assert ">A net</h" in web.get(page).get_data(as_text=True)
    disk.plant(StorageKey.blob(digest_bytes(data)))
    for _ in range(2):  # found by reading, then known
        answer = web.get(page)
        assert (answer.status_code, "damaged" in answer.get_data(as_text=True)) == (200, True)
    assert served.sql("SELECT count(*) FROM blob_damage") == [(1,)]
