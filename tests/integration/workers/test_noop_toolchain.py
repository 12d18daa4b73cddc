"""The no-op toolchain through the real attempt: claims, questions, storage, publish, and what a client makes of it."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from pt2hub import archive
from pt2hub.client.machine.host import check_host
from pt2hub.domain.artifacts import CODE_TYPE, NO_TENSORS, WEIGHTS_TYPE
from pt2hub.domain.attached_files.files import files_of
from pt2hub.domain.builds import STEPS
from pt2hub.domain.digests import digest_chunks
from pt2hub.errors import BadConfiguration, Incompatible
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.services.blobs.documents import read_manifest
from pt2hub_workers.builds.noop_toolchain import NoopToolchain
from pt2hub_workers.children.child import ChildHung
from pt2hub_workers.config import read_noop_pauses
from pt2hub_workers.operations.cancellation import CancellationToken, Cancelled
from support.packages import safetensors
from support.plane import noop_spec

if TYPE_CHECKING:
    from pathlib import Path

    from support.attempts import AttemptBench


def test_it_walks_every_step_and_publishes_an_artifact_that_says_what_it_is(attempts: AttemptBench) -> None:
    version = attempts.submit()
    attempts.attempt(version)

    build = attempts.services.builds.view(version.builds[0].id)
    assert build.state == "succeeded"
    assert [(step.name, step.state) for step in build.steps] == [
        (name, "done") for name in STEPS if name != "reuse"
    ]
    config = attempts.config(version)
    assert config.verification["toolchain"] == "noop"
    assert config.toolchain.torch == "0.0.0+noop"
    assert config.provenance["compiler_processes"] == []
    assert config.provenance["published_by"] == {"kind": "server", "name": "server", "id": None}
    assert config.provenance["requested_by"] == config.provenance["published_by"]
    with pytest.raises(Incompatible, match=r"torch: needs 0\.0, has"):
        check_host(config)


def test_its_blobs_are_valid_and_the_single_file_can_be_assembled(
    attempts: AttemptBench, tmp_path: Path
) -> None:
    version = attempts.submit()
    attempts.attempt(version)

    storage, digest = attempts.services.storage, attempts.services.builds.view(version.builds[0].id).artifact
    assert digest is not None
    manifest = read_manifest(storage, digest)
    files = {}
    for media_type in (CODE_TYPE, WEIGHTS_TYPE):
        layer = manifest.layer(media_type)
        assert layer is not None
        files[media_type] = tmp_path / layer.digest.removeprefix("sha256:")
        storage.fetch(StorageKey.blob(layer.digest), files[media_type])
    constants = attempts.config(version).constants
    assert [item.fqn for item in constants.table] == list(
        archive.read_safetensors_header(files[WEIGHTS_TYPE])
    )
    single = archive.write_single_file(
        files[CODE_TYPE],
        constants.blob_member,
        archive.blob_chunks(constants, files[WEIGHTS_TYPE]),
        constants.blob_size,
        tmp_path / "model.pt2",
    )
    assert single == attempts.config(version).single_file


def test_other_weights_of_the_same_shapes_reuse_its_code(attempts: AttemptBench) -> None:
    digests = []
    for value in (b"first weights 16", b"other weights 16"):
        data = safetensors({"w": ("F32", (4,), value)})
        digests.append(attempts.store(data))
    versions = [attempts.submit(weights=digest) for digest in digests]
    for version in versions:
        attempts.attempt(version)

    first, second = (attempts.config(version) for version in versions)
    steps = {step.name for step in attempts.services.builds.view(versions[1].builds[0].id).steps}
    assert "reuse" in steps
    assert "compile" not in steps
    assert second.key == first.key
    assert second.provenance["code_reused_from"] is not None
    assert second.single_file.digest != first.single_file.digest


def test_a_halt_ends_a_pause_at_once(attempts: AttemptBench) -> None:
    version, token = attempts.submit(), CancellationToken()
    threading.Timer(0.3, lambda: token.set("cancelled")).start()
    began = time.monotonic()
    with pytest.raises(Cancelled):
        attempts.attempt(version, token, compile=30.0)
    assert time.monotonic() - began < 15.0


def test_a_pause_beyond_the_specs_limit_is_a_build_that_took_too_long(tmp_path: Path) -> None:
    child = NoopToolchain(tmp_path, {"export": 0.2}).take("build")
    job = {"spec": noop_spec("net"), "directory": str(child.workspace.inside)}
    with pytest.raises(ChildHung, match=r"no answer within 0\.05 s \(step: export\)"):
        child.work(
            job, on_event=lambda _: None, on_output=lambda _: None, seconds=0.05, token=CancellationToken()
        )


def test_pauses_are_read_from_one_setting() -> None:
    assert read_noop_pauses("compile=0.5, verify=2") == {"compile": 0.5, "verify": 2.0}
    assert read_noop_pauses("") == {}


@pytest.mark.parametrize(
    "text", ["compile", "compile=x", "fetch=1", "compile=-1", "compile=1e9", "verify=nan"]
)
def test_a_pause_that_is_none_is_refused_with_the_steps_there_are(text: str) -> None:
    with pytest.raises(BadConfiguration) as caught:
        read_noop_pauses(text)
    assert caught.value.where == "PT2HUB_NOOP_PAUSES"
    assert "export, key, compile" in str(caught.value.hint)


def test_baked_weights_are_in_the_code_layer_which_is_the_single_file_and_comes_back_from_the_storage(
    attempts: AttemptBench,
) -> None:
    baked = {"compile": {"weights": "baked"}, "weights": _stored(attempts, b"baked weights 16")}
    version, same = attempts.submit(**baked), attempts.submit(**baked, checks={"tolerance": 0.002})
    other = attempts.submit(**{**baked, "weights": _stored(attempts, b"other weights 16")})
    for one in (version, same, other):
        attempts.attempt(one)

    config, second, third = (attempts.config(one) for one in (version, same, other))
    assert (config.constants.baked, config.constants.table) == (True, ())
    assert second.provenance["code_reused_from"] == config.single_file.digest
    assert third.key.digest != config.key.digest
    digest = attempts.services.builds.view(version.builds[0].id).artifact
    assert digest is not None
    weights = read_manifest(attempts.services.storage, digest).layer(WEIGHTS_TYPE)
    assert weights is not None
    assert weights.size == len(NO_TENSORS)
    assembly = attempts.services.single_file.find(digest)
    chunks = attempts.services.single_file.chunks(assembly, 0, config.single_file.size)
    assert digest_chunks(chunks) == config.single_file.digest == assembly.code.digest
    assert attempts.services.reindex.reindex()["unreadable"] == {}


def test_the_artifact_has_the_files_of_its_version_as_layers(attempts: AttemptBench) -> None:
    version = attempts.submit(
        files={"labels.txt": attempts.store(b"cat"), "README.md": attempts.store(b"# A")}
    )
    attempts.attempt(version)
    digest = attempts.services.builds.view(version.builds[0].id).artifact
    assert digest is not None
    files = files_of(read_manifest(attempts.services.storage, digest))
    assert [(item.name, item.digest) for item in files] == [
        (item.name, item.digest) for item in version.files
    ]
    assert len(files) == 2


def test_one_target_alone_may_have_its_weights_baked(attempts: AttemptBench) -> None:
    target = attempts.submit().builds[0].target
    version = attempts.submit(checks={"tolerance": 0.002}, targets=[{"target": target, "weights": "baked"}])
    attempts.attempt(version)

    assert attempts.config(version).constants.baked


def _stored(attempts: AttemptBench, value: bytes) -> str:
    data = safetensors({"w": ("F32", (4,), value)})
    return attempts.store(data)
