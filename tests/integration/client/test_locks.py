"""Lock files against the real API: locked versions stay, drift and edits are seen, and what is synced needs no server."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.client.client import Client
from pt2hub.client.config import ClientConfig
from pt2hub.client.lock.declarations import Project
from pt2hub.client.lock.lock_file import read_lock
from pt2hub.client.lock.locker import Upgrade
from pt2hub.errors import Incompatible, InvalidInput, LockMismatch, NotFound, ServerUnreachable
from support.artifacts import a_target
from support.registry import GPU

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pt2hub.domain.digests import Digest
    from support.registry import Registry
    from support.shell import Shell

HERE = a_target().name
NOBODY = "http://127.0.0.1:1"
PROD = "vision/resnet18@prod"


def publish(served: Registry, *targets: str, **changes: Any) -> list[Digest]:
    """A version with one artifact per target."""
    for number, target in enumerate(targets):
        served.worker(f"w{number}", target)
    version = served.submit(targets=list(targets), **changes)
    digests = []
    for build in version.builds:
        claim = served.claim(build.id)
        publication = served.publication(claim, code=f"code of {build.target} {version.number}".encode())
        served.services.builds.publish(claim, publication)
        digests.append(publication.manifest.digest)
    return digests


def republish(served: Registry, *targets: str) -> list[Digest]:
    """Another version of the same model."""
    return publish(served, *targets, source={"factory": "torchvision.models:resnet18", "seed": 7})


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a project, in which commands run."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def prod(client: Client, served: Registry) -> list[Digest]:
    """Version 1 on two targets, on which the alias is."""
    digests = publish(served, GPU, HERE)
    client.aliases.move("vision/resnet18", "prod", 1, reason="first")
    return digests


@pytest.fixture
def away(client: Client) -> Iterator[Client]:
    """The same user while the server is away."""
    with Client(replace(client.config, url=NOBODY)) as made:
        yield made


def declare(project: Path, *references: str, more: str = "") -> None:
    project.joinpath("pyproject.toml").write_text(f"[tool.pt2hub]\nmodels = {json.dumps(references)}\n{more}")


# -- locking -----------------------------------------------------------------------------------------------------------


def test_a_reference_is_locked_for_every_target(
    shell: Shell, project: Path, prod: list[Digest], client: Client
) -> None:
    told = shell("lock", PROD)
    assert (told.code, told.out.splitlines()) == (
        0,
        [f"Added {PROD}  version 1", "pt2hub.lock is up to date: 1 reference, 2 artifacts"],
    )
    lock = read_lock(project / "pt2hub.lock")
    assert (lock.server, lock.storage, lock.references) == (client.config.url, None, (PROD,))
    assert {item.target: item.manifest.digest for item in lock.models[0].artifacts} == {
        GPU: prod[0],
        HERE: prod[1],
    }
    assert lock.models[0].artifacts[0].weights == lock.models[0].artifacts[1].weights
    code, document = shell.json("lock")
    assert (code, document["written"], document["changes"]) == (0, False, [])


@pytest.mark.usefixtures("prod")
def test_a_locked_version_stays_when_the_alias_moves_until_it_is_upgraded(
    shell: Shell, project: Path, client: Client, served: Registry
) -> None:
    shell("lock", PROD)
    before = project.joinpath("pt2hub.lock").read_text()
    republish(served, HERE)
    client.aliases.move("vision/resnet18", "prod", 2, reason="second")
    assert shell("lock").code == 0
    assert project.joinpath("pt2hub.lock").read_text() == before
    assert client.pull(PROD, lock="pt2hub.lock").config.version.number == 1
    assert client.pull(PROD).config.version.number == 2
    told = shell("lock", "--upgrade", "vision/resnet18")
    assert "Updated vision/resnet18@prod  version 1 -> 2" in told.out
    assert client.pull("vision/resnet18", lock="pt2hub.lock").config.version.number == 2


@pytest.mark.usefixtures("prod")
def test_only_the_named_reference_is_upgraded_and_an_unknown_one_is_refused(
    shell: Shell, project: Path, client: Client, served: Registry
) -> None:
    client.aliases.move("vision/resnet18", "canary", 1, reason="first")
    shell("lock", PROD, "vision/resnet18@canary", "vision/resnet18@1")
    republish(served, HERE)
    for alias in ("prod", "canary"):
        client.aliases.move("vision/resnet18", alias, 2, reason="second")
    shell("lock", "-P", "vision/resnet18@canary")
    versions = {
        item.reference.partition("@")[2]: item.version for item in read_lock(project / "pt2hub.lock").models
    }
    assert versions == {"canary": 2, "prod": 1, "1": 1}
    shell("lock", "-U")
    assert read_lock(project / "pt2hub.lock").get(PROD).version == 2  # type: ignore[union-attr]
    told = shell("lock", "--upgrade", "vision/resnet81")
    assert (told.code, "[not_found]" in told.err, PROD in told.err) == (1, True, True)


@pytest.mark.usefixtures("prod")
def test_a_lock_can_be_limited_to_targets_and_widened_within_the_same_version(
    shell: Shell, project: Path, client: Client, served: Registry
) -> None:
    lock = project / "pt2hub.lock"
    shell("lock", PROD, "--targets", GPU)
    assert (read_lock(lock).targets, read_lock(lock).models[0].targets) == ((GPU,), (GPU,))
    republish(served, HERE)
    client.aliases.move("vision/resnet18", "prod", 2, reason="second")
    shell("lock", "--targets", f"{GPU},{HERE}")
    found = read_lock(lock).models[0]
    assert (found.version, set(found.targets)) == (1, {GPU, HERE}), "more targets of the locked version"
    shell("lock", "--targets", HERE)
    assert read_lock(lock).models[0].targets == (HERE,)
    shell("lock", "--targets", "all")
    assert (read_lock(lock).targets, set(read_lock(lock).models[0].targets)) == ((), {GPU, HERE})
    told = shell("lock", "--targets", "torch2.13-cpu-x86_64")
    assert (told.code, "has no artifact for torch2.13-cpu-x86_64" in told.err, GPU in told.err) == (
        1,
        True,
        True,
    )


@pytest.mark.usefixtures("prod")
def test_declared_references_are_locked_and_others_refused(shell: Shell, project: Path) -> None:
    declare(project, PROD, "vision/resnet18@1", more=f'targets = ["{HERE}"]\n')
    assert shell("lock").code == 0
    lock = read_lock(project / "pt2hub.lock")
    assert (lock.references, lock.targets) == (("vision/resnet18@1", PROD), (HERE,))
    assert shell("lock", PROD).code == 0
    told = shell("lock", "vision/resnet18")
    assert (told.code, "declared in pyproject.toml" in told.err) == (1, True)
    declare(project, PROD)
    assert "Removed vision/resnet18@1" in shell("lock").out


@pytest.mark.usefixtures("prod")
def test_without_a_declaration_references_are_added_and_removed(shell: Shell, project: Path) -> None:
    told = shell("lock")
    assert (told.code, "[invalid_input]" in told.err, "[tool.pt2hub]" in told.err) == (1, True, True)
    shell("lock", PROD)
    shell("lock", "vision/resnet18@1")
    assert len(read_lock(project / "pt2hub.lock").models) == 2
    shell("lock", "--remove", PROD)
    assert read_lock(project / "pt2hub.lock").references == ("vision/resnet18@1",)
    assert shell("lock", "--remove", PROD).code == 1


@pytest.mark.usefixtures("prod", "project")
def test_what_cannot_be_locked_is_refused_and_nothing_written(
    shell: Shell, project: Path, served: Registry
) -> None:
    served.submit(model="vision/pending", targets=[HERE])
    for reference, code in (
        ("vision/none@prod", "not_found"),
        ("vision/pending@1", "not_ready"),
        ("Vision/x", "invalid_input"),
    ):
        told = shell("lock", PROD, reference)
        assert (told.code, f"[{code}]" in told.err) == (1, True), told.err
    assert not (project / "pt2hub.lock").exists()


# -- syncing -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("prod")
def test_what_is_synced_needs_no_server(
    shell: Shell, project: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell("lock", PROD)
    told = shell("sync", "--frozen")
    assert (told.code, told.lines[0][:4]) == (0, [PROD, "version", "1", HERE])
    monkeypatch.setenv("PT2HUB_OFFLINE", "1")
    assert shell("sync", "--frozen").code == 0
    assert shell("sync").code == 0, "nothing is new, so nobody is asked"
    code, document = shell.json("pull", PROD, "--lock", "pt2hub.lock")
    assert (code, document["target"]) == (0, HERE)
    with Client(replace(client.config, url=NOBODY)) as away:
        assert away.pull(PROD, lock=project / "pt2hub.lock").config.target.name == HERE


@pytest.mark.usefixtures("prod")
def test_a_frozen_sync_fails_on_drift_and_changes_nothing(shell: Shell, project: Path) -> None:
    declare(project, PROD)
    assert shell("sync", "--frozen").code == 1, "there is no lock yet"
    shell("lock")
    before = project.joinpath("pt2hub.lock").read_text()
    declare(project, PROD, "vision/resnet18@1", more=f'targets = ["{HERE}"]\n')
    for command in (("sync", "--frozen"), ("lock", "--check")):
        code, document = shell.json(*command)
        assert (code, document["error"]["code"]) == (1, "lock_outdated")
        assert [item["path"] for item in document["error"]["details"]] == ["vision/resnet18@1", "targets"]
    assert project.joinpath("pt2hub.lock").read_text() == before
    assert shell("sync").code == 0
    assert shell("lock", "--check").code == 0
    assert shell("sync", "--frozen").code == 0


@pytest.mark.usefixtures("project")
def test_files_for_another_machine_are_synced_by_target(shell: Shell, prod: list[Digest]) -> None:
    shell("lock", PROD)
    code, document = shell.json("sync", "--frozen", "--targets", GPU)
    assert (code, [item["artifact"] for item in document["artifacts"]]) == (0, [prod[0]])
    told = shell("sync", "--frozen", "--targets", "torch2.13-cpu-x86_64")
    assert (told.code, "Nothing is locked for torch2.13-cpu-x86_64" in told.err) == (1, True)


def test_a_lock_without_a_target_for_this_machine_names_the_axes(
    client: Client, served: Registry, shell: Shell, project: Path
) -> None:
    publish(served, GPU)
    shell("lock", "vision/resnet18@1")
    with pytest.raises(Incompatible, match="needs a CUDA GPU") as caught:
        client.pull("vision/resnet18", lock=project / "pt2hub.lock")
    build = f"pt2hub build vision/resnet18@1 --target {HERE} --wait"
    assert str(caught.value.hint).endswith(f"{build}, then lock it: pt2hub lock --upgrade vision/resnet18@1")


def test_a_server_that_only_the_lock_names_is_asked_without_a_token(
    client: Client,
    prod: list[Digest],
    shell: Shell,
    project: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shell("lock", PROD)
    monkeypatch.setenv("PT2HUB_TOKEN", "pt2_wrong")
    given = {"PT2HUB_HOME": str(tmp_path / "other"), "PT2HUB_TOKEN": "pt2_wrong"}
    with Client(ClientConfig.from_environ(given)) as stranger:
        assert stranger.pull(PROD, lock=project / "pt2hub.lock").manifest_digest == prod[1]
        here = Project(project / "pt2hub.lock", None)
        update = stranger.locks.update(here, ["vision/resnet18"], upgrade=Upgrade(every=True))
        assert (update.written, update.after.server) == (True, client.config.url)
    with Client(
        ClientConfig.from_environ(given | {"PT2HUB_URL": NOBODY, "PT2HUB_HOME": str(tmp_path / "third")})
    ) as stranger:
        with pytest.raises(ServerUnreachable) as caught:
            stranger.pull(PROD, lock=project / "pt2hub.lock")
        assert caught.value.where == NOBODY, "a server that is named is the one that is asked"
    assert client.config.url != NOBODY


# -- locks that are wrong ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "code"),
    [
        ("version", "lock_mismatch"),
        ("manifest.digest", "lock_mismatch"),
        ("manifest.size", "lock_mismatch"),
        ("config.digest", "lock_mismatch"),
        ("code.digest", "lock_mismatch"),
        ("code.size", "lock_mismatch"),
        ("weights.digest", "lock_mismatch"),
        ("weights.size", "lock_mismatch"),
    ],
)
@pytest.mark.usefixtures("prod")
def test_an_edited_lock_is_refused_with_and_without_a_server(
    shell: Shell, project: Path, field: str, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell("lock", PROD)
    shell("sync", "--frozen")
    path = project / "pt2hub.lock"
    edit(path, field)
    for offline in ("0", "1"):
        monkeypatch.setenv("PT2HUB_OFFLINE", offline)
        found, document = shell.json("sync", "--frozen")
        expected = "offline" if offline == "1" and field == "manifest.digest" else code
        assert (found, document["error"]["code"]) == (1, expected)
        assert document["error"]["hint"]
    verified = shell("verify")
    assert verified.code == 1
    # A sync could not repair an edited lock. Without its manifest or config, nothing shows that it was edited.
    assert ("pt2hub lock --upgrade" in verified.out) is (field not in {"manifest.digest", "config.digest"})


@pytest.mark.usefixtures("prod")
@pytest.mark.parametrize("field", ["manifest.size", "config.digest", "code.size", "weights.digest"])
def test_an_edit_of_another_machines_entry_is_seen_by_a_sync(shell: Shell, project: Path, field: str) -> None:
    shell("lock", PROD)
    edit(project / "pt2hub.lock", field, GPU)
    code, document = shell.json("sync", "--frozen")
    assert (code, document["error"]["code"]) == (1, "lock_mismatch")
    assert field in [item["path"] for item in document["error"]["details"]]


def edit(path: Path, field: str, target: str = HERE) -> None:
    """Changes one field of the entry for a target."""
    head, _, rest = path.read_text().partition(f'target = "{target}"')
    name, _, part = field.partition(".")
    if name == "version":
        path.write_text(path.read_text().replace("version = 1\n", "version = 2\n"))
        return
    line = next(item for item in rest.splitlines() if item.startswith(f"{name} = "))
    digest, size = line.split('"')[1], line.split("size = ")[1].split(" ")[0]
    new = (
        line.replace(digest, digest[:-1] + ("0" if digest[-1] != "0" else "1"))
        if part == "digest"
        else line.replace(f"size = {size}", f"size = {int(size) + 1}")
    )
    path.write_text(f'{head}target = "{target}"{rest.replace(line, new, 1)}')


@pytest.mark.usefixtures("prod")
def test_a_target_that_was_changed_is_refused_before_large_files(
    shell: Shell, project: Path, client: Client
) -> None:
    shell("lock", PROD, "--targets", GPU)
    path = project / "pt2hub.lock"
    path.write_text(path.read_text().replace(GPU, HERE))
    with pytest.raises(LockMismatch, match="target") as caught:
        client.pull(PROD, lock=path)
    assert str(path) in str(caught.value.where)
    weights = read_lock(path).models[0].artifacts[0].weights.digest
    assert not any(item.name == weights.removeprefix("sha256:") for item in client.config.cache.rglob("*"))


def test_a_lock_of_another_server_is_named_as_one(
    client: Client, prod: list[Digest], shell: Shell, project: Path
) -> None:
    del prod
    shell("lock", PROD)
    path, other = project / "pt2hub.lock", "https://other.example"
    path.write_text(path.read_text().replace(client.config.url, other))
    told = shell("lock", "vision/resnet18@1")
    assert (told.code, "[lock_mismatch]" in told.err, f"PT2HUB_URL={other}" in told.err) == (1, True, True)
    assert shell("sync", "--frozen").code == 0, "digests are the same everywhere: this server has them"
    edit(path, "manifest.digest")
    told = shell("sync", "--frozen")
    assert (told.code, "[lock_mismatch]" in told.err, f"written for {other}" in told.err) == (1, True, True)


@pytest.mark.usefixtures("prod", "client")
def test_each_kind_of_a_broken_lock_has_its_code(shell: Shell, project: Path) -> None:
    shell("lock", PROD)
    path = project / "pt2hub.lock"
    text = path.read_text()
    broken = {
        "client_too_old": text.replace("schema = 1", "schema = 99"),
        "lock_invalid": text.replace(
            "version = 1\n", "<<<<<<< ours\nversion = 1\n=======\nversion = 2\n>>>>>>> theirs\n"
        ),
        "not_found": None,
    }
    for code, content in broken.items():
        path.write_text(content) if content else path.unlink()
        for command in (("sync", "--frozen"), ("verify",), ("tree",), ("pull", PROD, "--lock", str(path))):
            found, document = shell.json(*command)
            assert (found, document["error"]["code"]) == (1, code), command
            assert document["error"]["hint"]


@pytest.mark.usefixtures("prod")
def test_another_artifacts_manifest_in_the_lock_is_not_taken(
    shell: Shell, project: Path, prod: list[Digest], client: Client
) -> None:
    shell("lock", PROD)
    path = project / "pt2hub.lock"
    text = path.read_text()
    path.write_text(text.replace(prod[0], "x").replace(prod[1], prod[0]).replace('"x"', f'"{prod[1]}"'))
    with pytest.raises(LockMismatch, match="target"):
        client.pull(PROD, lock=path)


def test_a_name_that_is_not_locked_is_not_asked_for_elsewhere(
    client: Client, prod: list[Digest], shell: Shell, project: Path
) -> None:
    del prod
    shell("lock", PROD)
    with pytest.raises(NotFound, match="is not locked"):
        client.pull("vision/resnet18@1", lock=project / "pt2hub.lock")
    with pytest.raises(NotFound, match="not locked for"):
        client.pull(PROD, target="torch2.13-cpu-x86_64", lock=project / "pt2hub.lock")


def test_a_wrong_token_matters_to_nobody_who_only_reads(
    client: Client, prod: list[Digest], shell: Shell, project: Path
) -> None:
    shell("lock", PROD)
    for token in (None, "pt2_wrong"):
        config = replace(client.config, token=token, home=project / "home")
        with Client(config) as wrong:
            assert wrong.pull(PROD, lock="pt2hub.lock").manifest_digest == prod[1]


def test_nothing_is_built_in_the_place_of_what_is_locked(
    client: Client, prod: list[Digest], shell: Shell, project: Path
) -> None:
    del prod
    shell("lock", PROD)
    with pytest.raises(InvalidInput, match="no other may take their place") as caught:
        client.load(PROD, lock=project / "pt2hub.lock", on_missing="build")
    assert f"pt2hub lock --upgrade {PROD}" in str(caught.value.hint)


# -- looking -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("prod", "project")
def test_verify_hashes_every_file(shell: Shell, client: Client) -> None:
    shell("lock", PROD)
    told = shell("verify")
    assert (told.code, "To repair: pt2hub sync --frozen" in told.out) == (1, True), "nothing is synced yet"
    shell("sync", "--frozen")
    code, document = shell.json("verify")
    states = {item["target"]: item["state"] for item in document["artifacts"]}
    assert (code, states) == (0, {HERE: "verified", GPU: "absent"})
    assert shell("verify", "--targets", GPU).code == 1
    artifact = client.pull(PROD, lock="pt2hub.lock")
    for path, name in ((artifact.weights, "weights"), (artifact.code, "code")):
        data = path.read_bytes()
        path.chmod(0o644)
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        code, document = shell.json("verify")
        damaged = next(item for item in document["artifacts"] if item["target"] == HERE)
        assert (code, damaged["state"], damaged["files"]) == (1, "damaged", [name])
        path.write_bytes(data)
    artifact.weights.unlink()
    assert "incomplete" in shell("verify").out
    shell("sync", "--frozen")
    assert shell("verify").code == 0


@pytest.mark.usefixtures("prod", "project")
def test_the_tree_says_what_is_locked_and_cached(shell: Shell, client: Client) -> None:
    shell("lock", PROD)
    shell("sync", "--frozen")
    told = shell("tree")
    lines = told.out.splitlines()
    assert lines[0] == client.config.url
    assert f"{PROD}  version 1" in lines[1]
    assert any(HERE in line and line.endswith("  in the cache") for line in lines)
    assert any(GPU in line and line.endswith("not in the cache") for line in lines)
    assert max(map(len, lines)) <= 80
    code, document = shell.json("tree")
    cached = {item["target"]: item["cached"] for item in document["models"][0]["artifacts"]}
    assert (code, cached) == (0, {HERE: True, GPU: False})


def test_a_lock_from_the_server_away_names_the_server(
    away: Client, prod: list[Digest], shell: Shell, project: Path
) -> None:
    del prod
    shell("lock", PROD)
    with (
        Client(replace(away.config, home=project / "empty")) as empty,
        pytest.raises(ServerUnreachable) as caught,
    ):
        empty.pull(PROD, lock="pt2hub.lock")
    assert caught.value.where == NOBODY
