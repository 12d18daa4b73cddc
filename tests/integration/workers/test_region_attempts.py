"""Regions through the real attempt, with the no-op toolchain: its spec's names become parts with code of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub import archive
from pt2hub.domain.artifacts import CODE_TYPE
from pt2hub.domain.digests import digest_bytes
from pt2hub.errors import ArtifactCrashed, OutputRefused
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.services.blobs.documents import read_manifest
from pt2hub_workers.builds.noop_toolchain import NoopToolchain
from pt2hub_workers.children.child import ChildDied
from pt2hub_workers.operations.cancellation import CancellationToken
from support.children import ChildWrapper

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.domain.artifacts import Region
    from pt2hub.domain.digests import Digest
    from pt2hub.wire.responses import VersionView
    from pt2hub_workers.builds.toolchains import ChildHandle
    from support.attempts import AttemptBench

Change = Callable[[dict[str, Any]], None]
OTHER_CODE = digest_bytes(b"another layer")


def submit(attempts: AttemptBench, *names: str, **fields: Any) -> VersionView:
    return attempts.submit(compile={"regions": list(names)}, **fields)


def regions_of(attempts: AttemptBench, version: VersionView) -> tuple[Region, ...]:
    regions: tuple[Region, ...] = attempts.config(version).regions
    return regions


def log_of(attempts: AttemptBench, version: VersionView) -> list[str]:
    return [line.text for line in attempts.services.logs.lines(version.builds[0].id)[1]]


def code_layer(attempts: AttemptBench, version: VersionView) -> Digest:
    digest = attempts.services.builds.view(version.builds[0].id).artifact
    assert digest is not None
    layer = read_manifest(attempts.services.storage, digest).layer(CODE_TYPE)
    assert layer is not None
    return layer.digest


def read_parts(attempts: AttemptBench, version: VersionView, path: Path) -> list[bytes]:
    attempts.services.storage.fetch(StorageKey.blob(code_layer(attempts, version)), path)
    return [archive.read_member(path, part.members[0]) for part in regions_of(attempts, version)]


def test_parts_are_compiled_once_and_reused_by_another_model(attempts: AttemptBench, tmp_path: Path) -> None:
    first = submit(attempts, "encoder", "head")
    attempts.attempt(first)
    second = submit(attempts, "stem", "encoder", source={"factory": "support.tiny_models:Mlp", "seed": 9})
    attempts.attempt(second)

    assert [(part.modules, part.calls, part.code_reused_from) for part in regions_of(attempts, first)] == [
        (("encoder.0", "encoder.1"), 2, None),
        (("head.0", "head.1"), 2, None),
    ]
    stem, encoder = regions_of(attempts, second)
    assert (stem.code_reused_from, encoder.code_reused_from) == (None, code_layer(attempts, first))
    assert attempts.config(second).provenance["code_reused_from"] is None
    assert [name for name in log_of(attempts, second) if "2 calls of" in name] == [
        f"Program key {stem.key.digest} of 2 calls of stem.0, stem.1: compiling, because no code has this key yet.",
        (
            f"Program key {encoder.key.digest} of 2 calls of encoder.0, encoder.1: reusing code "
            f"{code_layer(attempts, first)}."
        ),
    ]
    assert (
        read_parts(attempts, first, tmp_path / "first.zip")[0]
        == read_parts(attempts, second, tmp_path / "second.zip")[1]
    )
    assert attempts.services.reindex.reindex()["unreadable"] == {}


def test_all_parts_of_reused_code_come_from_the_layer_that_was_reused(attempts: AttemptBench) -> None:
    first, retrained = (submit(attempts, "encoder", checks={"tolerance": t}) for t in (0.001, 0.002))
    attempts.attempt(first)
    attempts.attempt(retrained)
    assert attempts.config(retrained).provenance["code_reused_from"] == code_layer(attempts, first)
    (part,) = regions_of(attempts, retrained)
    assert part.code_reused_from == code_layer(attempts, first)


def test_a_model_without_regions_has_none(attempts: AttemptBench) -> None:
    version = attempts.submit()
    attempts.attempt(version)
    assert regions_of(attempts, version) == ()


def test_after_reused_parts_failed_verification_everything_is_compiled(attempts: AttemptBench) -> None:
    first = submit(attempts, "encoder")
    attempts.attempt(first)
    second = submit(attempts, "encoder", "head")
    attempts.attempt(second, toolchain=_Crashing(attempts.scratch, crashes=1))

    assert [part.code_reused_from for part in regions_of(attempts, second)] == [None, None]
    lines = log_of(attempts, second)
    failed = f"Reused code {code_layer(attempts, first)} failed verification, compiling instead: "
    assert [line for line in lines if line.startswith(failed)]
    ends = [line.rpartition(": ")[2] for line in lines if "encoder.0" in line]
    assert ends == [
        f"reusing code {code_layer(attempts, first)}.",
        "compiling, because reused code failed verification.",
    ]


def test_compiled_parts_that_fail_verification_fail_the_build(attempts: AttemptBench) -> None:
    with pytest.raises(ArtifactCrashed):
        attempts.attempt(submit(attempts, "encoder"), toolchain=_Crashing(attempts.scratch, crashes=1))


@dataclass(frozen=True, slots=True)
class _Crash(ChildWrapper):
    """An artifact whose code crashes."""

    def work(self, job: Mapping[str, Any], **_: Any) -> Any:
        """The job."""
        del job
        raise ChildDied(-11, "run")


class _Crashing(NoopToolchain):
    """The no-op toolchain with artifacts that crash, the first ones."""

    def __init__(self, scratch: Path, crashes: int) -> None:
        super().__init__(scratch)
        self._crashes = crashes

    def take(self, role: str) -> ChildHandle:
        """One for a job."""
        child = super().take(role)
        if role != "artifact" or not self._crashes:
            return child
        self._crashes -= 1
        return _Crash(child)


def _with_parts(**changes: Any) -> Change:
    def change(message: dict[str, Any]) -> None:
        if message.get("question") == "verify":
            message["parts"]["regions"][0] |= changes

    return change


def _with_question(**changes: Any) -> Change:
    def change(message: dict[str, Any]) -> None:
        if message.get("question") == "regions":
            message |= changes

    return change


def _with_many(message: dict[str, Any]) -> None:
    if message.get("question") == "verify":
        message["parts"]["regions"] *= 257


KEY = {"digest": digest_bytes(b"key"), "fields": {}}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_with_question(keys="all"), "must be a list of at most 256"),
        (_with_question(keys=[KEY] * 257), "must be a list of at most 256"),
        (_with_question(keys=[{"digest": 7}], names=[""]), "must be str"),
        (_with_question(keys=[{"digest": "sha256:\x00", "fields": {}}]), "must be a digest"),
        (_with_question(names=["one", "two"]), "one for each key"),
        (_with_question(names=[7]), "one for each key"),
        (_with_question(names="x"), "one for each key"),
        (_with_parts(code_reused_from=OTHER_CODE), "did not receive"),
        (_with_parts(members=["model/data/other.so"]), "not in the code layer"),
        (_with_parts(key={"digest": "none", "fields": {}}), "must be a digest"),
        (_with_parts(calls=0), "invalid number of calls"),
        (_with_parts(calls=1), "invalid number of calls"),
        (_with_parts(calls=1 << 31), "invalid number of calls"),
        (_with_parts(modules="encoder"), "must be tuple"),
        (_with_parts(native=None), "must be an object"),
        (_with_many, "more than 256 parts"),
    ],
)
def test_what_a_build_says_about_its_parts_is_checked(
    attempts: AttemptBench, change: Change, words: str
) -> None:
    version = submit(attempts, "encoder")
    with pytest.raises(OutputRefused, match=words):
        attempts.attempt(version, toolchain=_Forging(attempts.scratch, change))
    assert attempts.services.builds.view(version.builds[0].id).artifact is None


def test_a_part_that_is_never_reused_is_compiled_and_the_log_says_why(attempts: AttemptBench) -> None:
    def change(message: dict[str, Any]) -> None:
        if message.get("question") == "regions":
            message["keys"][0]["fields"]["reuse"] = {"never": ["an object"], "unique": "1"}
            message["names"][0] = "a  part\nof the model" + "x" * 400

    for tolerance in (0.001, 0.002):
        version = submit(attempts, "encoder", source=_source(tolerance), checks={"tolerance": tolerance})
        attempts.attempt(version, toolchain=_Forging(attempts.scratch, change))
    (line,) = [line for line in log_of(attempts, version) if "a part of the model" in line]
    assert line.endswith("x: compiling, because code like this is never reused: an object")
    assert len(line) < 500


def _source(tolerance: float) -> dict[str, Any]:
    return {"factory": "support.tiny_models:Mlp", "seed": int(tolerance * 1000)}


@dataclass(frozen=True, slots=True)
class _Forger(ChildWrapper):
    """The no-op toolchain's build with messages that were changed."""

    change: Change

    def work(self, job: Mapping[str, Any], *, on_event: Any, **_: Any) -> Any:
        """The job."""

        def send(message: dict[str, Any]) -> Any:
            self.change(message)
            return on_event(message)

        return self.child.work(
            job, on_event=send, on_output=lambda _: None, seconds=9, token=CancellationToken()
        )


class _Forging(NoopToolchain):
    """The no-op toolchain with a build whose messages are changed."""

    def __init__(self, scratch: Path, change: Change) -> None:
        super().__init__(scratch)
        self._change = change

    def take(self, role: str) -> ChildHandle:
        """One for a job."""
        child = super().take(role)
        return _Forger(child, self._change) if role == "build" else child
