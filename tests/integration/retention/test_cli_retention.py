"""`pt2hub delete`, `pt2hub retention` and `pt2hub admin collect`: dry by default, and in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.digests import digest_bytes
from support.promoted import MODEL, move, published

if TYPE_CHECKING:
    from pathlib import Path

    from support.registry import Registry
    from support.shell import Shell


@pytest.fixture
def two(served: Registry) -> Registry:
    for _ in range(2):
        published(served)
    move(served, 2, None)
    return served


def test_what_would_go_is_shown_and_only_yes_deletes(shell: Shell, two: Registry) -> None:
    told = shell("delete", f"{MODEL}@1")
    assert (told.code, told.err) == (0, "")
    assert told.out.startswith(f"goes: {MODEL}@1: 1 artifact")
    assert "Would free " in told.out
    assert "add --yes to delete it" in told.out
    assert two.sql("SELECT count(*) FROM versions") == [(2,)]
    assert shell("delete", f"{MODEL}@1", "--yes").code == 2
    kept = shell("delete", f"{MODEL}@2")
    assert kept.code == 1
    assert kept.out.startswith(
        f"{MODEL}@2 is kept because prod of {MODEL} pins it\nwould go: {MODEL}@2: 1 artifact"
    )
    assert kept.out.endswith("Nothing was deleted, and --yes would refuse it.\n")
    refused = shell("delete", f"{MODEL}@2", "--yes", "--reason", "old")
    assert (refused.code, "[still_needed]" in refused.err) == (1, True)
    assert refused.err.count("kept because") == 1
    code, document = shell.json("delete", f"{MODEL}@1", "--yes", "--reason", "old")
    assert (code, document["deleted"]) == (0, True)
    gone = shell("show", f"{MODEL}@1")
    assert (gone.code, "[deleted]" in gone.err, "old" in gone.err) == (1, True, True)
    forced = shell("delete", f"{MODEL}@2", "--force", "--keep-shared", "--yes", "--reason", "leaked weights")
    assert (forced.code, f"note: the alias prod of {MODEL} is removed" in forced.out) == (0, True)
    assert shell("delete", MODEL, "--yes", "--reason", "empty").code == 0
    assert "[deleted]" in shell("show", MODEL).err


def test_versions_that_share_the_bytes_are_named_or_go_with_one_option(
    shell: Shell, served: Registry
) -> None:
    for seed in range(3):
        view = served.submit(source={"factory": "torchvision.models:resnet18", "seed": seed})
        served.published(view, weights_data=b"weights with a secret, longer than an empty document is" * 2)
    wanted = ("delete", f"{MODEL}@1", "--force", "--yes", "--reason", "leaked weights")
    refused = shell(*wanted)
    also = f"To delete what shares its bytes too: --also {MODEL}@2 --also {MODEL}@3. "
    assert also in refused.err
    assert f"weights of {MODEL}@1 (sha256:" in refused.err
    assert also in shell("delete", f"{MODEL}@1", "--force").out
    for seed in range(3, 13):
        view = served.submit(source={"factory": "torchvision.models:resnet18", "seed": seed})
        served.published(view, weights_data=b"weights with a secret, longer than an empty document is" * 2)
    assert "To delete what shares its bytes too: --also-sharing (12 versions). " in shell(*wanted).err
    dry = shell("delete", f"{MODEL}@1", "--force", "--also-sharing")
    assert dry.code == 0
    assert f"goes: {MODEL}@13: 1 artifact" in dry.out
    done = shell(*wanted, "--also-sharing")
    assert (done.code, served.sql("SELECT count(*) FROM versions")) == (0, [(0,)])
    assert shell("delete", f"{MODEL}@1", "--also-sharing").code == 2


def test_arguments_that_no_server_takes_are_refused_in_the_words_of_the_command_line(
    shell: Shell, two: Registry
) -> None:
    assert two
    told = shell("delete", f"{MODEL}@1", "--yes", "--reason", "x" * 10_000)
    assert "reason: The reason is too long (10,000 characters, at most 500)" in told.err
    told = shell("versions", MODEL, "--where", f"owner={'x' * 10_000}")
    assert "Shorten where: it has 10,006 characters." in told.err
    told = shell("delete", "sha256:zz")
    assert "Invalid digest 'sha256:zz'" in told.err
    told = shell("retention", "set", MODEL, "--last", "-5")
    assert told.code == 1
    assert "has invalid fields" in told.err
    assert "Send {" not in told.err
    assert "document:" not in told.err
    assert "Send {" in shell("retention", "set", MODEL, "--last", "-5", "--json").out
    labels = [f"k{index}=v" for index in range(1000)]
    assert "1,000 fields" in shell("label", "set", MODEL, *labels).err


def test_policies_are_set_shown_and_previewed(shell: Shell, two: Registry) -> None:
    assert two
    assert "everything is kept; no policy is set" in shell("retention", "show", MODEL).out
    told = shell("retention", "set", "vision", "--last", "1", "--pulled-within", "30")
    assert "the last 1 versions and those pulled or published within 30 days are kept" in told.out
    assert "(policy of vision)" in shell("retention", "show", MODEL).out
    assert "0 versions go at the next run" in shell("retention", "preview", "vision").out
    shell("retention", "set", MODEL, "--last", "1")
    preview = shell("retention", "preview", MODEL).out
    assert f"goes: {MODEL}@1" in preview
    assert "1 version goes at the next run; frees " in preview
    assert shell("retention", "set", MODEL).code == 2
    assert "(policy of vision)" in shell("retention", "rm", MODEL).out
    again = shell("retention", "rm", MODEL)
    assert (again.code, "[not_found]" in again.err, f"retention show {MODEL}" in again.err) == (1, True, True)
    assert "no policy is set" in shell("retention", "rm", "vision").out
    assert "0 versions go at the next run" in shell("retention", "preview", MODEL).out
    assert shell("retention", "set", MODEL, "--everything").code == 0


def test_an_operator_collects_and_accepts_digests(
    shell: Shell, two: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PT2HUB_DATABASE_URL", two.database_url)
    monkeypatch.setenv("PT2HUB_STORAGE", str(tmp_path / "blobs"))
    two.sql("DELETE FROM blob_leases")
    one = shell("admin", "collect", "--dry-run", "--grace", "1h").out
    assert "that nothing needs stays until its grace ends.\n" in one
    two.blob(b"unneeded")
    two.sql("DELETE FROM blob_leases")
    dry = shell("admin", "collect", "--dry-run", "--grace", "0s")
    assert dry.out.startswith("Would mark 2 blobs (")
    assert "grace" not in dry.out
    kept = shell("admin", "collect", "--dry-run", "--grace", "1h")
    assert kept.out.startswith("Would mark 0 blobs (0 B) that nothing needs.\n2 blobs (")
    assert "that nothing needs stay until their grace ends.\n" in kept.out, (
        "a grace that was given is not advised"
    )
    assert "their grace ends; a shorter one: --grace 1h\n" in shell("admin", "collect", "--dry-run").out
    told = shell("admin", "collect", "--grace", "0s")
    assert (told.code, "removed 2 blobs" in told.out) == (0, True)
    assert "sharing saves " in told.out
    code, document = shell.json("admin", "collect", "--grace", "0s")
    assert (code, document["removed"], document["orphans"]) == (0, 0, 0)
    unknown = shell("admin", "accept", digest_bytes(b"x"), "--reason", "none")
    assert (unknown.code, "is not refused" in unknown.err) == (1, True)
