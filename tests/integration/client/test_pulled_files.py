"""Attached files as users have them: published, pulled, locked, offline and in bundles."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pt2hub.client.client import Client
from pt2hub.client.lock.lock_file import read_lock
from pt2hub.errors import BlobDamaged, DigestMismatch, EmptyFile, FileFixed, LockMismatch, NotFound, Offline
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.wire.documents import write_document
from support.artifacts import a_target
from support.damaged import spoil
from support.registry import a_spec

if TYPE_CHECKING:
    from pathlib import Path

    from support.registry import Registry
    from support.shell import Shell

HERE = a_target().name
NET = "vision/resnet18@1"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a spec and files beside it, in which commands run."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "net.yaml").write_text(
        write_document(a_spec(targets=[HERE], files={"labels.txt": "data/labels.txt"}))
    )
    (folder / "data").mkdir()
    (folder / "data" / "labels.txt").write_text("cat\ndog\n")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "README.md").write_text("# A net\n")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def net(shell: Shell, served: Registry, project: Path) -> Path:
    """A published version with files, and the folder of its project."""
    told = shell("publish", "net.yaml", "--file", "tokenizer.json", "--file", "README.md:card:text/markdown")
    assert told.code == 0, told.err
    served.published(served.services.publish.version("vision/resnet18", 1))
    return project


def test_files_are_published_shown_and_pulled_by_their_names(net: Path, shell: Shell, client: Client) -> None:
    told = shell("show", NET)
    rows = [line.split() for line in told.out.splitlines() if line.endswith("  yes")]
    assert [row[:3] for row in rows] == [
        ["README.md", "card", "text/markdown"],
        ["labels.txt", "labels", "text/plain"],
        ["tokenizer.json", "tokenizer", "application/json"],
    ]
    code, pulled = shell.json("pull", NET)
    assert (code, set(pulled["files"])) == (0, {"README.md", "labels.txt", "tokenizer.json"})
    assert shell.json("pull", NET, "--no-files")[1]["files"] == {}
    artifact = client.pull(NET)
    assert {name: path.name for name, path in artifact.files.items()} == {
        name: name for name in artifact.files
    }
    assert artifact.files["labels.txt"].read_text() == "cat\ndog\n"
    assert len({path.parent for path in artifact.files.values()}) == 1
    assert "file labels.txt" in str(artifact)
    (net / "tokenizer.json").write_text("[]")
    assert client.publish("net.yaml", files={"tokenizer.json": "tokenizer.json"}).number == 2


def test_files_need_no_server_once_they_are_there_and_damage_is_repaired(
    net: Path, client: Client, shell: Shell
) -> None:
    del net
    digest = client.pull(NET, files=False).manifest_digest
    pinned = f"vision/resnet18@{digest}"
    assert client.pull(pinned, offline=True, files=False).files == {}
    with pytest.raises(Offline):
        client.pull(pinned, offline=True)
    artifact = client.pull(NET)
    assert client.pull(pinned, offline=True).files == artifact.files
    blob = artifact.files["labels.txt"].resolve()
    blob.chmod(0o644)
    blob.write_text("cat\ncat\n")
    blob.chmod(0o444)
    assert client.pull(NET, verify="always").files["labels.txt"].read_text() == "cat\ndog\n"
    code, listed = shell.json("cache", "ls")
    assert (code, [item["missing_files"] for item in listed["folders"][0]["artifacts"]]) == (0, [0])
    assert shell("cache", "prune", "--max-size", "0").code == 0
    assert not list((client.config.cache / "files").glob("*"))


def test_a_damaged_file_is_named_and_can_be_left_out(
    net: Path, client: Client, served: Registry, shell: Shell
) -> None:
    del net
    (file,) = (
        item for item in client.files.list("vision/resnet18", 1).files if item.name == "tokenizer.json"
    )
    spoil(served, StorageKey.blob(file.digest))
    with pytest.raises(BlobDamaged, match=r"attached file tokenizer\.json is damaged") as caught:
        client.pull(NET)
    assert "files=False" in str(caught.value.hint)
    assert client.pull(NET, files=False).files == {}
    assert shell("pull", NET, "--no-files").code == 0


def test_the_error_for_a_missing_file_says_why_it_is_missing(net: Path, client: Client) -> None:
    del net
    lean, whole = client.pull(NET, files=False).files, client.pull(NET).files
    with pytest.raises(KeyError) as left_out:
        lean["tokenizer.json"]
    assert "'tokenizer.json' was not pulled because of files=False" in str(left_out.value)
    with pytest.raises(KeyError) as unknown:
        whole["tokeniser.json"]
    assert str(unknown.value) == (
        "Unknown attached file 'tokeniser.json'. Did you mean 'tokenizer.json'? "
        "The version has README.md, labels.txt, tokenizer.json."
    )
    assert (lean.get("tokenizer.json"), "tokenizer.json" in lean, lean) == (None, False, {})


def test_an_artifact_without_its_files_is_whole(net: Path, client: Client, shell: Shell) -> None:
    del net
    client.pull(NET, files=False)
    assert [item["missing_files"] for item in shell.json("cache", "ls")[1]["folders"][0]["artifacts"]] == [0]


def test_a_lock_pins_the_files_and_later_documentation_changes_nothing(
    net: Path, shell: Shell, client: Client
) -> None:
    assert shell("lock", NET).code == 0
    lock = read_lock(net / "pt2hub.lock")
    assert (lock.schema, [item.name for item in lock.models[0].files]) == (
        2,
        ["README.md", "labels.txt", "tokenizer.json"],
    )
    (net / "README.md").write_text("# Better\n")
    assert shell("file", "add", NET, "README.md").code == 0
    assert shell.json("lock")[1]["written"] is False
    assert shell("lock", "--upgrade", NET).code == 0
    assert read_lock(net / "pt2hub.lock") == lock
    tree = shell("tree").out
    assert "attached files" in tree
    assert "tokenizer.json  sha256:" in tree
    assert client.pull(NET, lock="pt2hub.lock").files["README.md"].read_text() == "# A net\n"
    assert client.files.get("vision/resnet18", 1, "README.md").read_text() == "# Better\n"
    assert shell("verify").code == 0
    blob = client.pull(NET).files["labels.txt"].resolve()
    blob.chmod(0o644)
    blob.write_text("cat\ncat\n")
    code, document = shell.json("verify")
    assert (code, document["artifacts"][0]["files"]) == (1, ["files.labels.txt"])
    text = (net / "pt2hub.lock").read_text()
    (net / "pt2hub.lock").write_text(text.replace('name = "labels.txt"', 'name = "classes.txt"'))
    with pytest.raises(LockMismatch) as caught:
        client.pull(NET, lock="pt2hub.lock")
    assert "files.labels.txt.digest" in {item.path for item in caught.value.details}


def test_a_bundle_carries_the_files(net: Path, client: Client, tmp_path: Path) -> None:
    client.exports.bundle([NET], net / "net.tar")
    with Client(replace(client.config, home=tmp_path / "other")) as other:
        other.exports.import_bundle(net / "net.tar")
        digest = client.pull(NET).manifest_digest
        artifact = other.pull(f"vision/resnet18@{digest}", offline=True)
    assert artifact.files["tokenizer.json"].read_text() == "{}"
    data = (net / "net.tar").read_bytes().replace(b"cat\ndog\n", b"cat\nfox\n")
    (net / "net.tar").write_bytes(data)
    with Client(replace(client.config, home=tmp_path / "third")) as third, pytest.raises(DigestMismatch):
        third.exports.import_bundle(net / "net.tar")


def test_documentation_is_added_listed_read_and_removed(net: Path, shell: Shell, client: Client) -> None:
    (net / "LICENSE").write_text("MIT\n")
    assert "LICENSE" in shell("file", "add", NET, "LICENSE").out
    assert shell("file", "get", NET, "LICENSE", "-o", "copy.txt").out == "copy.txt\n"
    assert (net / "copy.txt").read_text() == "MIT\n"
    assert shell("file", "get", NET, "LICENSE", "-o", "-").out == "MIT\n"
    assert not (net / "-").exists()
    assert shell("file", "get", NET, "LICENSE", "-o", "-", "--json").code == 2
    for wrong, problem in (
        ("data", "is a folder"),
        ("README.md:card", "not found"),
        ("gone.txt", "not found"),
    ):
        told = shell("file", "add", NET, wrong)
        assert (told.code, problem in told.err) == (1, True), told.err
    refused = shell("file", "get", NET, "LICENSE")
    assert (refused.code, "exists" in refused.err) == (1, True), "one's own is not replaced unasked"
    code, document = shell.json("file", "ls", NET)
    assert (code, [item["name"] for item in document["files"] if not item["pinned"]]) == (0, ["LICENSE"])
    assert document["changed_by"]["name"] == "client"
    assert "LICENSE" not in shell("file", "rm", NET, "LICENSE").out
    told = shell("file", "add", NET, "data/labels.txt")
    assert (told.code, "file_fixed" in told.err) == (1, True)
    with pytest.raises(FileFixed):
        client.files.remove("vision/resnet18", 1, "labels.txt")
    with pytest.raises(NotFound, match="LICENSE"):
        client.files.get("vision/resnet18", 1, "LICENSE")
    (net / "empty.md").touch()
    with pytest.raises(EmptyFile):
        client.files.add("vision/resnet18", 1, net / "empty.md")


def test_a_dry_run_names_the_files_and_a_missing_one_is_said(project: Path, shell: Shell) -> None:
    code, preview = shell.json("publish", "net.yaml", "--file", "tokenizer.json", "--dry-run")
    assert (code, {"files.labels.txt", "files.tokenizer.json"} <= set(preview["blobs"])) == (0, True)
    told = shell("publish", "net.yaml", "--file", "none.json")
    assert (told.code, "none.json" in told.err) == (1, True)
    (project / "data" / "labels.txt").unlink()
    assert "data/labels.txt" in shell("publish", "net.yaml").err
