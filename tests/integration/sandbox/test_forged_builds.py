"""What a build's process says and leaves is not believed: it ends as the build's fault, and nothing wrong is published."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.digests import digest_bytes
from pt2hub.errors import BadConfiguration, ExportFailed, ModelInterferes, OutputRefused, WorkerLost
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.services.blobs.documents import read_manifest
from pt2hub_workers.builds.noop_toolchain import NoopToolchain
from pt2hub_workers.children.child import ChildDied
from pt2hub_workers.inside.operations import files
from pt2hub_workers.inside.operations.channel import CHANNEL_LOST
from pt2hub_workers.sandbox.workspaces import Workspace
from support.children import ChildWrapper

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.domain.digests import Digest
    from pt2hub.domain.workers import Isolation
    from pt2hub_workers.builds.toolchains import ChildHandle
    from support.attempts import AttemptBench

Ask = Any
"""Sends an event to the worker, which answers it."""


@dataclass(frozen=True, slots=True)
class _Forger(ChildWrapper):
    """Does a build as the no-op toolchain does, but for what it forges."""

    forge: Callable[[Ask, Workspace, Mapping[str, Any]], Any]

    def work(self, job: Mapping[str, Any], *, on_event: Ask, **_: Any) -> Any:
        """The job."""
        return self.forge(on_event, self.child.workspace, job)


class _Forging(NoopToolchain):
    """The no-op toolchain with a build that forges."""

    def __init__(self, scratch: Path, forge: Callable[[Ask, Workspace, Mapping[str, Any]], Any]) -> None:
        super().__init__(scratch)
        self._forge = forge

    def take(self, role: str) -> ChildHandle:
        """One for a job."""
        child = super().take(role)
        return _Forger(child, self._forge) if role == "build" else child


@pytest.fixture
def forged(attempts: AttemptBench) -> Callable[..., Exception]:
    """Runs an attempt whose build forges; returns the error that it ends with."""

    def run(forge: Callable[[Ask, Workspace, Mapping[str, Any]], Any]) -> Exception:
        version = attempts.submit()
        with pytest.raises(Exception, match=r".") as caught:
            attempts.attempt(version, toolchain=_Forging(attempts.scratch, forge))
        assert list(attempts.scratch.iterdir()) == []
        assert attempts.services.builds.view(version.builds[0].id).artifact is None
        return caught.value

    return run


@pytest.mark.parametrize(
    "message",
    [
        {"event": "ask"},
        {"event": "ask", "question": "publish"},
        {"event": "ask", "question": ["weights"]},
        {"event": "ask", "question": "weights"},
        {"event": "ask", "question": "code"},
        {"event": "ask", "question": "code", "key": {"digest": 7, "fields": []}},
        {"event": "ask", "question": "verify", "parts": {"code_path": "out/code.zip"}},
        {"event": "ask", "question": "golden", "document": {}},
        {"event": "step", "name": "publish", "state": "done", "seconds": 1.0},
        {"event": "step", "name": "nonsense", "state": "running"},
        {"event": "step", "name": "compile", "state": "failed"},
        {"event": "step", "name": "compile", "state": "done", "seconds": "NaN"},
        {"event": "step", "name": "compile", "state": "done", "seconds": -1.0},
        {"event": "step", "name": "compile", "state": "done", "seconds": 1e300},
        {"event": "step"},
        {"event": "log"},
        {"event": "log", "text": ["x"]},
        {"event": "result"},
        {"event": "passed"},
    ],
    ids=str,
)
def test_a_message_that_is_none_is_the_builds_fault(
    forged: Callable[..., Exception], message: dict[str, Any]
) -> None:
    error = forged(lambda send, _workspace, _job: send(message))

    assert isinstance(error, OutputRefused)
    assert error.hint


@pytest.mark.parametrize(
    "value",
    [
        *(None, [], {}, "passed", {"verification": {}, "autotune": [{"op": "mm"}]}),
        {"verification": {"result": "passed"}, "autotune": [], "measurements": []},
    ],
)
def test_a_build_that_says_it_succeeded_without_having_been_proven_is_refused(
    forged: Callable[..., Exception], value: object
) -> None:
    assert isinstance(forged(lambda *_: value), OutputRefused)


def test_weights_that_are_a_link_are_refused(forged: Callable[..., Exception]) -> None:
    def forge(send: Ask, workspace: Workspace, _: object) -> Any:
        (workspace.host / files.WEIGHTS).symlink_to("/etc/passwd")
        return send({"event": "ask", "question": "weights"})

    error = forged(forge)
    assert isinstance(error, OutputRefused)
    assert "regular file" in str(error)


def test_a_golden_document_must_name_the_files_that_are_there(forged: Callable[..., Exception]) -> None:
    def forge(send: Ask, workspace: Workspace, _: object) -> Any:
        for path in files.GOLDEN.values():
            (workspace.host / path).write_bytes(b"golden")
        other = digest_bytes(b"another model's")
        return send({"event": "ask", "question": "golden", "document": {"inputs": other, "outputs": other}})

    assert "does not match its files" in str(forged(forge))


def test_what_a_build_stores_has_an_end(forged: Callable[..., Exception], attempts: AttemptBench) -> None:
    def forge(send: Ask, workspace: Workspace, _: object) -> Any:
        for number in range(9):
            (workspace.host / files.WEIGHTS).write_bytes(b"%d" % number)
            send({"event": "ask", "question": "weights"})

    assert "'weights' was asked twice" in str(forged(forge))
    assert len(list(attempts.services.storage.keys("blobs"))) == 1


def test_a_build_that_reports_of_its_steps_without_end_is_ended(forged: Callable[..., Exception]) -> None:
    def forge(send: Ask, *_: object) -> Any:
        while True:
            send({"event": "step", "name": "export", "state": "running", "detail": "x"})

    assert "reports of steps" in str(forged(forge))


class _Recast(NoopToolchain):
    """Brings weights that are not the version's, and says of its artifact what would excuse them."""

    def __init__(self, scratch: Path, **told: Any) -> None:
        super().__init__(scratch)
        self._told = told

    def take(self, role: str) -> ChildHandle:
        """One for a job."""
        child = super().take(role)
        if role != "build":
            return child

        def forge(send: Ask, workspace: Workspace, job: Mapping[str, Any]) -> Any:
            def told(message: dict[str, Any]) -> Any:
                if message.get("question") == "verify":
                    (workspace.host / "out" / "other").write_bytes(b"another model's weights")
                    message["parts"] |= {"weights_path": "out/other", **self._told}
                return send(message)

            return child.work(job, on_event=told, on_output=print, seconds=9, token=_NEVER)

        return _Forger(child, forge)


def test_other_weights_need_a_dtype_that_was_asked_for(attempts: AttemptBench) -> None:
    with pytest.raises(OutputRefused, match="dtype differs from the request"):
        attempts.attempt(attempts.submit(), toolchain=_Recast(attempts.scratch, dtype="float16"))


@pytest.mark.parametrize(
    ("asked", "constants", "words"),
    [
        ("split", {"baked": True}, "form of the artifact.s weights"),
        ("baked", {"baked": False}, "form of the artifact.s weights"),
        ("baked", {"baked": True}, "must be empty"),
    ],
    ids=str,
)
def test_weights_are_baked_where_that_was_asked_for_and_then_the_weights_layer_is_empty(
    attempts: AttemptBench, asked: str, constants: dict[str, Any], words: str
) -> None:
    version = attempts.submit(compile={"weights": asked})
    told = {"blob_member": "", "blob_size": 0, "table": [], **constants}

    with pytest.raises(OutputRefused, match=words):
        attempts.attempt(version, toolchain=_Recast(attempts.scratch, constants=told))


@pytest.mark.parametrize(
    ("died", "kind"),
    [
        (ChildDied(0, "start"), ExportFailed),
        (ChildDied(None, "export"), ModelInterferes),
        (ChildDied(CHANNEL_LOST, "export"), ModelInterferes),
        (ChildDied(-9, "export", stopped=True), ExportFailed),
        (ChildDied(-11, "export"), ExportFailed),
        (ChildDied(-9, "export"), WorkerLost),
    ],
)
def test_how_a_build_is_told_that_its_process_ended(
    forged: Callable[..., Exception], died: ChildDied, kind: type[Exception]
) -> None:
    def forge(send: Ask, *_: object) -> Any:
        send({"event": "step", "name": "export", "state": "running"})
        raise died

    error = forged(forge)
    assert type(error) is kind
    assert "step: " in str(error)


class _Changing(NoopToolchain):
    """Returns something else than it had proven."""

    def take(self, role: str) -> ChildHandle:
        """One for a job."""
        child = super().take(role)
        if role != "build":
            return child

        def forge(send: Ask, workspace: Workspace, job: Mapping[str, Any]) -> Any:
            told = child.work(job, on_event=send, on_output=print, seconds=9, token=_NEVER)
            (workspace.host / "out" / "code.zip").unlink()
            (workspace.host / "out" / "code.zip").write_bytes(b"something else")
            return {
                **told,
                "signature": None,
                "code_path": "out/weights.safetensors",
                "verification": {"result": "better than passed", "notes": ["kept"]},
            }

        return _Forger(child, forge)


class _Never:
    """A halt that never comes."""

    reason = None

    def check(self) -> None:
        """Goes on."""

    def wait(self, seconds: float) -> bool:
        """Nothing to wait for."""
        del seconds
        return False


_NEVER: Any = _Never()


def test_what_is_published_is_what_was_proven_whatever_the_build_says_later(attempts: AttemptBench) -> None:
    first = attempts.submit()
    second = attempts.submit(model="crash/other", source={"factory": "support.tiny_models:Mlp", "seed": 4})
    attempts.attempt(first)
    attempts.attempt(second, toolchain=_Changing(attempts.scratch))

    honest, changing = attempts.config(first), attempts.config(second)
    assert changing.provenance["code_reused_from"] is None
    assert changing.verification["result"] == "passed"
    assert changing.verification["notes"] == ["kept"]
    assert changing.signature == honest.signature
    digest = attempts.services.builds.view(second.builds[0].id).artifact
    assert digest is not None
    storage = attempts.services.storage
    code = StorageKey.blob(read_manifest(storage, digest).layers[0].digest)
    assert b"".join(storage.read(code)).startswith(b"PK")


class _Confined(NoopToolchain):
    """Says that it confines what it runs."""

    isolation: Isolation = "sandbox"
    isolation_profile: Digest | None = digest_bytes(b"profile")


def test_an_artifact_says_how_its_build_was_confined_and_in_which_image_it_was_made(
    attempts: AttemptBench,
) -> None:
    plain, confined = attempts.submit(), attempts.submit(model="crash/other")
    attempts.attempt(plain)
    image = "registry.example/worker@" + digest_bytes(b"image")
    attempts.attempt(confined, toolchain=_Confined(attempts.scratch), image=image)

    first, second = (attempts.config(version).provenance for version in (plain, confined))
    assert (first["isolation"], first["isolation_profile"], first["image"]) == ("none", None, None)
    assert (second["isolation"], second["isolation_profile"]) == ("sandbox", digest_bytes(b"profile"))
    assert second["image"] == image


def test_rooms_that_cannot_be_made_are_the_workers_fault(attempts: AttemptBench) -> None:
    attempts.scratch.touch()
    with pytest.raises(BadConfiguration, match="cannot create"):
        attempts.attempt(attempts.submit())
