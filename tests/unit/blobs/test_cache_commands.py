"""`pt2hub cache`: what is there, whether it is intact, and how to get rid of it."""

from __future__ import annotations

import json
import os
import random
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.client.blobs.cache import BlobCache
from pt2hub.client.blobs.partial import PartialFile
from pt2hub.domain.artifacts import ARTIFACT_TYPE, CODE_TYPE, CONFIG_TYPE, WEIGHTS_TYPE, Descriptor, Manifest
from pt2hub.domain.codec import encode
from pt2hub.domain.digests import canonical_json, digest_bytes, hex_of
from support.artifacts import a_config
from support.shell import Shell

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.domain.digests import Digest

LARGE = 40_000


@dataclass(frozen=True)
class Machine:
    """A machine with a cache."""

    cache: BlobCache
    shell: Shell

    @property
    def root(self) -> Path:
        return self.cache.own.root

    def put(self, data: bytes, *, age_s: float = 0.0) -> Digest:
        """Stores a file that was last used so long ago."""
        path = self.cache.put(digest_bytes(data), data)
        then = time.time() - age_s
        os.utime(path.with_suffix(".stat"), (then, then))
        return digest_bytes(data)

    def artifact(self, number: int, weights: bytes, *, age_s: float = 0.0) -> Digest:
        """Stores an artifact: manifest, config, code and weights."""
        code = random.Random(number).randbytes(1000)
        config = canonical_json(
            encode(
                replace(a_config(), version=replace(a_config().version, model="vision/tiny", number=number))
            )
        )
        layers = tuple(
            Descriptor(kind, digest_bytes(data), len(data))
            for kind, data in ((CODE_TYPE, code), (WEIGHTS_TYPE, weights))
        )
        manifest = Manifest(ARTIFACT_TYPE, Descriptor(CONFIG_TYPE, digest_bytes(config), len(config)), layers)
        for data in (config, code, weights, manifest.as_bytes()):
            self.put(data, age_s=age_s)
        return manifest.digest

    def download(self, data: bytes) -> PartialFile:
        """Begins a download of some bytes."""
        self.cache.own.make()
        made = PartialFile.open(
            self.cache.own.partial, hex_of(digest_bytes(data)), len(data), watch=lambda _: None
        )
        made.write(0, data[: len(data) // 2])
        return made

    def files(self) -> set[str]:
        return {path.name for path in self.cache.own.blobs.iterdir() if path.suffix != ".stat"}

    def bytes(self) -> int:
        return sum(path.stat().st_size for path in self.cache.own.blobs.iterdir() if path.suffix != ".stat")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Machine:
    monkeypatch.delenv("PT2HUB_HOME", raising=False)
    monkeypatch.setenv("PT2HUB_CACHE", str(tmp_path / "cache"))
    return Machine(BlobCache(tmp_path / "cache"), Shell(capsys))


WEIGHTS = random.Random(1).randbytes(LARGE)
OTHER = random.Random(2).randbytes(LARGE)


def listed(machine: Machine) -> dict[str, Any]:
    code, document = machine.shell.json("cache", "ls")
    assert code == 0
    (folder,) = document["folders"]
    return dict(folder)


def test_an_empty_cache_is_listed(machine: Machine) -> None:
    told = machine.shell("cache", "ls")
    assert (told.code, told.out) == (0, f"{machine.root}  (0 B)\nIt has no artifacts.\n")
    assert not machine.root.exists(), "looking makes nothing"


def test_artifacts_are_listed_by_their_last_use_with_what_belongs_to_none(machine: Machine) -> None:
    old = machine.artifact(1, WEIGHTS, age_s=3 * 86400)
    new = machine.artifact(2, WEIGHTS)
    machine.put(b"an evaluation result")
    machine.download(OTHER).close()
    active = machine.download(b"x" * 100)
    (machine.cache.own.blobs / "notes.txt").write_text("mine")
    told = machine.shell("cache", "ls")
    active.close()
    assert [line[0] for line in told.lines[2:4]] == ["vision/tiny@2", "vision/tiny@1"]
    assert [line[-1] for line in told.lines[2:4]] == [f"sha256:{hex_of(each)[:12]}" for each in (new, old)]
    assert "3 d ago" in told.out
    assert "1 other file (20 B)" in told.out
    assert f"{hex_of(digest_bytes(OTHER))[:12]}: 19.53 KiB, interrupted" in told.out
    assert f"{hex_of(digest_bytes(b'x' * 100))[:12]}: 50 B, under way" in told.out
    assert "notes.txt" in told.out
    assert max(len(line) for line in told.out.splitlines()[1:]) <= 80
    folder = listed(machine)
    assert folder["bytes"] == machine.bytes() - len("mine")
    assert [item["artifact"] for item in folder["artifacts"]] == [new, old]
    assert folder["strange"] == ["notes.txt"]


def test_an_artifact_whose_files_are_missing_says_so(machine: Machine) -> None:
    machine.artifact(1, WEIGHTS)
    machine.cache.own.path(digest_bytes(WEIGHTS)).unlink()
    assert "(incomplete)" in machine.shell("cache", "ls").out
    (found,) = listed(machine)["artifacts"]
    assert found["missing_files"] == 1


def test_verify_finds_every_kind_of_damage_and_exits_with_1(machine: Machine) -> None:
    machine.artifact(1, WEIGHTS)
    assert machine.shell("cache", "verify").out == "4 files verified, 0 damaged\n"
    flipped, linked = machine.put(b"flipped"), machine.put(b"linked")
    path = machine.cache.own.path(flipped)
    path.chmod(0o600)
    path.write_bytes(b"Flipped")
    path = machine.cache.own.path(linked)
    path.unlink()
    path.symlink_to("/etc/hostname")
    machine.cache.own.blobs.chmod(0o777)
    told = machine.shell("cache", "verify")
    assert told.code == 1
    assert told.out.startswith("5 files verified, 3 damaged\n")
    assert "its digest is sha256:" in told.out
    assert "it is not a regular file" in told.out
    assert f"chmod go-w {machine.cache.own.blobs}" in told.out
    code, document = machine.shell.json("cache", "verify")
    assert (code, len(document["damaged"])) == (1, 3)
    assert machine.cache.find(flipped) is None


def test_prune_without_a_size_removes_what_killed_processes_left_and_nothing_else(machine: Machine) -> None:
    machine.artifact(1, WEIGHTS, age_s=9 * 86400)
    machine.download(OTHER).close()
    active = machine.download(b"x" * 100)
    kept = machine.files()
    digits = "0" * 64
    for name in (f"{digits}.stat12345678", f"{digits}.stat", f"{digits}.part", "notes.txt"):
        (machine.cache.own.blobs / name).write_text("{}")
        os.utime(machine.cache.own.blobs / name, (time.time() - 61,) * 2)
    (machine.cache.own.blobs / f"{digits}.12345678").write_text("a running pull renames it in a moment")
    told = machine.shell("cache", "prune")
    assert (told.code, told.out.split(" (")[0]) == (0, "Removed 0 files and 1 interrupted download")
    assert machine.files() == kept | {"notes.txt", f"{digits}.part", f"{digits}.12345678"}
    assert not (machine.cache.own.blobs / f"{digits}.stat").exists()
    assert len(list(machine.cache.own.partial.iterdir())) == 1, "somebody works on it"
    active.close()


@pytest.mark.parametrize("dry", [True, False])
def test_prune_keeps_the_artifacts_that_were_used_last_with_all_their_files(
    machine: Machine, *, dry: bool
) -> None:
    third = machine.artifact(3, OTHER, age_s=30)
    first = machine.artifact(1, WEIGHTS, age_s=10)
    second = machine.artifact(2, WEIGHTS, age_s=20)
    alone = machine.put(b"of no artifact", age_s=40)
    before = machine.files()
    args = ["cache", "prune", "--max-size", "64KiB"]  # the first two share their weights
    code, document = machine.shell.json(*args, *(["--dry-run"] if dry else []))
    assert code == 0
    assert {hex_of(each) for each in (third, alone, digest_bytes(OTHER))} <= {
        hex_of(item["digest"]) for item in document["removed"]
    }
    assert (document["dry_run"], document["kept_bytes"] <= 64 << 10) == (dry, True)
    if dry:
        assert machine.files() == before
    else:
        assert [item["artifact"] for item in listed(machine)["artifacts"]] == [first, second]
        assert machine.bytes() == document["kept_bytes"]
        assert machine.shell("cache", "verify").code == 0


def test_nothing_fits_into_nothing(machine: Machine) -> None:
    machine.artifact(1, WEIGHTS)
    assert machine.shell("cache", "prune", "--max-size", "0KiB").code == 0
    assert machine.files() == set()
    assert list(machine.cache.own.blobs.iterdir()) == []


@pytest.mark.parametrize("size", ["", "10", "10GB", "-1GiB", "all", "1e3KiB"])
def test_a_size_that_is_none_is_refused_and_nothing_removed(machine: Machine, size: str) -> None:
    machine.artifact(1, WEIGHTS)
    before = machine.files()
    told = machine.shell("cache", "prune", "--max-size", size)
    assert told.code == 1
    assert "[invalid_input]" in told.err
    assert "16GiB" in told.err
    assert machine.files() == before


@pytest.mark.parametrize("data", [b"", b"{}", b"[" * 100_000, b'{"artifactType": 3}', b"null", b"\xff\xfe"])
def test_files_that_look_like_documents_do_not_disturb(machine: Machine, data: bytes) -> None:
    machine.put(data)
    machine.put(json.dumps({"artifactType": ARTIFACT_TYPE, "config": {}, "layers": []}).encode())
    assert listed(machine)["other_files"] == 2


def test_the_shared_cache_is_listed_first_and_pruned_by_its_owner(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PT2HUB_SHARED_CACHE", str(tmp_path / "shared"))
    BlobCache(tmp_path / "own", shared=tmp_path / "shared").put(digest_bytes(b"shared"), b"shared")
    machine.artifact(1, WEIGHTS)
    _, document = machine.shell.json("cache", "ls")
    assert [(folder["path"], folder["bytes"] > 10) for folder in document["folders"]] == [
        (str(tmp_path / "shared"), False),
        (str(machine.root), True),
    ]
    _, document = machine.shell.json("cache", "prune", "--max-size", "0KiB")
    assert len(document["removed"]) == 5
