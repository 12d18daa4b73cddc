"""What belongs to a version answers from an imported bundle, as it was at the export."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.client.artifacts.origin import LastKnownResolutionWarning
from pt2hub.client.client import Client
from pt2hub.client.records.record_store import RecordStore
from pt2hub.client.records.version_records import RECORD
from pt2hub.domain.digests import Digest, canonical_json, digest_bytes, hex_of
from pt2hub.errors import CorruptArchive, DigestMismatch, Offline
from pt2hub.wire.documents import write_document
from support.artifacts import a_target
from support.registry import a_spec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.registry import Registry
    from support.shell import Shell

MODEL = "vision/resnet18"
NET = f"{MODEL}@1"
HERE = a_target().name
DATA = "sha256:" + "a" * 64
SHA = "4f1c8a0e9d3b7c65f2a1908e7d6c5b4a39281706"


@pytest.fixture
def folder(
    shell: Shell, served: Registry, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A folder with a bundle, `net`, of a version with labels, lineage, evaluations and later documentation."""
    made = tmp_path / "project"
    made.mkdir()
    monkeypatch.chdir(made)
    (made / "net.yaml").write_text(write_document(a_spec(targets=[HERE])))
    (made / "README.md").write_text("# A net\n")
    (made / "LICENSE").write_text("MIT\n")
    for options in (
        (
            "publish",
            "net.yaml",
            "--file",
            "README.md",
            "--label",
            f"git.sha={SHA}",
            "--label",
            "owner=search",
        ),
        ("lineage", "add", NET, "other:hf:microsoft/resnet-18@4e8a8d1"),
        ("file", "add", NET, "LICENSE"),
    ):
        done = shell(*options)
        assert done.code == 0, done.err
    served.published(served.services.publish.version(MODEL, 1))
    evaluation = {
        "version": NET,
        "metric": "accuracy",
        "value": 0.761,
        "unit": "1",
        "count": 10,
        "data_set": DATA,
    }
    client.performance.report_evaluations([evaluation])
    assert shell("alias", "set", NET, "prod", "--reason", "first").code == 0
    client.exports.bundle([f"{MODEL}@prod"], made / "net")
    return made


def elsewhere(client: Client, home: Path) -> Client:
    """A client on a machine without the server."""
    config = client.config
    return Client(
        replace(config, home=home, availability=config.availability.override(offline=True, max_age=None))
    )


def test_everything_answers_offline_as_it_was_at_the_export(
    folder: Path, client: Client, tmp_path: Path
) -> None:
    def answers(of: Client) -> list[Any]:
        return [
            of.versions.get(MODEL, 1),
            of.models.get(MODEL),
            of.lineage.get(MODEL, 1),
            of.performance.evaluations(MODEL),
            of.files.list(MODEL, 1),
            of.artifacts.get(Digest(of.versions.get(MODEL, 1).builds[0].artifact or "")),
        ]

    before = answers(client)
    assert before[0].aliases == ("prod",)
    client.labels.change(MODEL, 1, set={"owner": "somebody else"})
    with elsewhere(client, tmp_path / "other") as other:
        with pytest.raises(Offline, match="No bundle with it was imported"):
            other.versions.get(MODEL, 1)
        other.exports.import_bundle(folder / "net")
        with pytest.warns(LastKnownResolutionWarning, match=f"{NET} is as it was exported"):
            assert answers(other) == before
        assert other.files.get(MODEL, 1, "LICENSE").read_text() == "MIT\n", "said once"
        with pytest.warns(LastKnownResolutionWarning):
            assert other.artifacts.resolve(f"{MODEL}@prod").number == 1
        with pytest.raises(Offline, match="a change needs the server"):
            other.labels.change(MODEL, 1, set={"a": "b"})
        with pytest.raises(Offline):
            other.models.list()
        with pytest.raises(Offline, match="an export needs the server"):
            other.exports.bundle([NET], tmp_path / "again.tar")


@pytest.mark.filterwarnings("default::pt2hub.client.artifacts.origin.LastKnownResolutionWarning")
def test_show_answers_offline_and_says_how_old_it_is(
    folder: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PT2HUB_CACHE", str(tmp_path / "cache"))
    assert shell("label", "set", MODEL, "license=MIT").code == 0
    assert shell("export", "bundle", f"{MODEL}@prod", str(folder / "labelled")).code == 0
    assert shell("import", str(folder / "labelled")).code == 0
    monkeypatch.setenv("PT2HUB_OFFLINE", "1")
    code, shown = shell.json("show", NET)
    assert (code, shown["aliases"], shown["card"]["name"]) == (0, ["prod"], "README.md")
    assert {item["key"]: item["value"] for item in shown["labels"]} == {"git.sha": SHA, "owner": "search"}
    assert "is as it was exported" in shown["warnings"][0]
    done = shell("show", NET)
    assert (done.code, "A net" in done.out, "is as it was exported" in done.err) == (0, True, True)
    assert "owner" in shell("label", "ls", NET).out
    assert [line.split() for line in shell("label", "ls", MODEL).out.splitlines()] == [
        ["KEY", "VALUE"],
        ["license", "MIT"],
    ]
    assert "hf:microsoft/resnet-18" in shell("lineage", "show", NET).out


def test_an_older_bundle_without_records_is_imported(folder: Path, client: Client, tmp_path: Path) -> None:
    index = json.loads((folder / "net" / "index.json").read_text())
    index["manifests"] = [item for item in index["manifests"] if RECORD not in item["annotations"]]
    (folder / "net" / "index.json").write_text(json.dumps(index))
    with elsewhere(client, tmp_path / "other") as other:
        assert [item.reference for item in other.exports.import_bundle(folder / "net")] == [NET]
        with pytest.raises(Offline):
            other.versions.get(MODEL, 1)


def test_an_older_export_does_not_replace_a_later_one(folder: Path, client: Client, tmp_path: Path) -> None:
    with elsewhere(client, tmp_path / "other") as other:
        other.exports.import_bundle(folder / "net")
        store = RecordStore(other.config.cache, other.config.url)
        known = store.find(MODEL, 1)
        assert known is not None
        assert abs(known.exported_at - time.time()) < 600
        store.keep(
            replace(known, exported_at=known.exported_at - 1, lineage=replace(known.lineage, ancestors=()))
        )
        assert store.find(MODEL, 1) == known


def _label(key: str, value: str) -> Callable[[dict[str, Any]], None]:
    return lambda record: record["version"]["labels"].append({"key": key, "value": value})


def _put(path: str, value: object) -> Callable[[dict[str, Any]], None]:
    def change(record: dict[str, Any]) -> None:
        *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
        at: Any = record
        for step in steps:
            at = at[step]
        at[last] = value

    return change


CHANGES = (
    _label("pt2hub.secret", "x"),
    _label("Owner", "x"),
    _label("owner", "given twice"),
    _label("note", "a\x1b[2Jb"),
    _label("note", "x" * 10_000),
    _put("model.labels", {f"key{number}": "x" for number in range(1000)}),
    _put("version.number", 2),
    _put("version.model", "../../etc"),
    _put("model.name", "vision/other"),
    _put("lineage.number", 7),
    _put("lineage.ancestors.0.parent", "hf:a\x07b@c"),
    _put("lineage.ancestors.0.link", "javascript:alert(1)"),
    _put("evaluations.0.data_digest", "none"),
    _put("evaluations.0.value", float("nan")),
    _put("evaluations.0.number", 2),
    _put("evaluations.0.metric", "acc\nuracy"),
    _put("artifacts.0.model", "vision/other"),
    _put("files.files.0.name", "../../.bashrc"),
    _put("files.files.0.size", 0),
    _put("files.files.0.digest", DATA),
    _put("version.builds.0.artifact", DATA),
    _put("exported_at", float("inf")),
    _put("exported_at", "yesterday"),
    _put("version", None),
)
"""What no server accepts or sends."""


def test_records_that_no_server_would_send_are_refused(folder: Path, client: Client, tmp_path: Path) -> None:
    bundle = folder / "net"
    index = json.loads((bundle / "index.json").read_text())
    entry = next(item for item in index["manifests"] if RECORD in item["annotations"])
    manifest = json.loads(blob(bundle, entry["digest"]).read_bytes())
    text = blob(bundle, manifest["config"]["digest"]).read_text()
    with elsewhere(client, tmp_path / "other") as other:
        for number, change in enumerate(CHANGES):
            record = json.loads(text)
            change(record)
            data = json.dumps(record).encode()
            manifest["config"] |= {"digest": store(bundle, data), "size": len(data)}
            entry["digest"] = store(bundle, canonical_json(manifest))
            (bundle / "index.json").write_text(json.dumps(index))
            with pytest.raises(CorruptArchive):  # noqa: PT012  # the number says which one was accepted
                other.exports.import_bundle(bundle)
                pytest.fail(f"change {number} was accepted")
        with pytest.raises(Offline):
            other.versions.get(MODEL, 1)


def test_documentation_that_was_changed_on_the_way_is_refused(
    folder: Path, client: Client, tmp_path: Path
) -> None:
    blob(folder / "net", digest_bytes(b"MIT\n")).write_bytes(b"GPL\n")
    with elsewhere(client, tmp_path / "other") as other, pytest.raises(DigestMismatch):
        other.exports.import_bundle(folder / "net")


def blob(bundle: Path, digest: str) -> Path:
    """The file of a blob."""
    return bundle / "blobs" / "sha256" / hex_of(Digest(digest))


def store(bundle: Path, data: bytes) -> Digest:
    """Add a blob to a bundle."""
    digest = digest_bytes(data)
    blob(bundle, digest).write_bytes(data)
    return digest
