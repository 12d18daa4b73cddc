"""Live models published to a real API: what arrives, what is uploaded, and the handle that comes back."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.export import Dim

import pt2hub
from pt2hub.archive import read_safetensors_header
from pt2hub.archive.code import check_code
from pt2hub.archive.exported_programs import check_program
from pt2hub.cli import main as cli
from pt2hub.client.publishing.published import Published
from pt2hub.domain.builds import BuildState
from pt2hub.domain.codec import decode, encode
from pt2hub.domain.digests import Digest
from pt2hub.errors import BuildActive, InvalidInput, NotFound, NotReady, Unauthorized
from pt2hub.wire.responses import VersionView
from support.artifacts import a_target
from support.registry import a_spec
from support.tiny_models import Mlp

if TYPE_CHECKING:
    from pt2hub.client.builds.events import BuildEvent
    from pt2hub.client.client import Client
    from support.registry import Registry

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "publish-from-python.md"
HERE = a_target().name
X = torch.arange(32.0).reshape(4, 8)
SHAPES = {"x": {0: Dim("batch", max=64)}}


@pytest.fixture
def environ(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PT2HUB_HOME", str(client.config.home))
    monkeypatch.setenv("PT2HUB_URL", client.config.url)
    monkeypatch.setenv("PT2HUB_TOKEN", str(client.config.token))


@pytest.fixture
def blobs(tmp_path: Path, served: Registry) -> Blobs:
    served.worker("w1", HERE)
    return Blobs(tmp_path / "blobs")


class Blobs:
    """What the storage of the server holds."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def digests(self) -> set[str]:
        return {f"sha256:{path.name}" for path in self._root.rglob("*") if len(path.name) == 64}

    def path(self, digest: str) -> Path:
        (found,) = self._root.rglob(Digest(digest).removeprefix("sha256:"))
        return found


def published(client: Client, model: torch.nn.Module, **options: Any) -> Published:
    return client.publish(model, (X,), name="tiny/mlp", dynamic_shapes=SHAPES, **options)


def test_a_live_model_arrives_as_a_program_with_weights_and_example_inputs(
    client: Client, blobs: Blobs
) -> None:
    model = Mlp().eval()
    version = published(
        client, model, checks={"tolerance": 0.01}, compile={"options": {"max_autotune": True}}
    )
    assert (version.reference, version.created) == ("tiny/mlp@1", True)
    assert [build.target for build in version.builds] == [HERE]
    spec = version.spec
    example = spec["inputs"][0].pop("example")
    assert spec["inputs"] == [{"name": "x", "shape": ["batch", 8]}]
    assert spec["dims"] == {"batch": {"max": 64, "example": 4}}
    assert spec["checks"] == {"tolerance": 0.01}
    assert spec["compile"] == {"options": {"max_autotune": True}}
    program = spec["source"]["program"]
    assert blobs.digests() == {program, spec["weights"], example}
    assert check_program(blobs.path(program)).torch_version == torch.__version__
    assert set(read_safetensors_header(blobs.path(spec["weights"]))) == set(model.state_dict())
    assert set(read_safetensors_header(blobs.path(example))) == {"x"}


def test_the_same_model_again_uploads_nothing_and_is_the_same_version(client: Client, blobs: Blobs) -> None:
    model = Mlp().eval()
    first = published(client, model)
    before = {digest: blobs.path(digest).stat().st_mtime_ns for digest in blobs.digests()}
    again = published(client, model)
    assert (again.number, again.created, again.identity) == (1, False, first.identity)
    assert {digest: blobs.path(digest).stat().st_mtime_ns for digest in blobs.digests()} == before


def test_of_a_retrained_model_only_the_weights_move(client: Client, blobs: Blobs) -> None:
    first = published(client, Mlp().eval())
    before = blobs.digests()
    second = published(client, Mlp().eval())
    assert (second.number, second.created) == (2, True)
    assert blobs.digests() - before == {second.spec["weights"]}
    assert {**second.spec, "weights": first.spec["weights"]} == first.spec


def test_a_model_is_shipped_as_its_source_code(client: Client, blobs: Blobs, tmp_path: Path) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "net.py").write_text("from support.tiny_models import Mlp as build\n")
    version = published(client, Mlp().eval(), code=folder, entry="net:build", entry_kwargs={"width": 16})
    source = version.spec["source"]
    assert (source["entry"], source["kwargs"]) == ("net:build", {"width": 16})
    assert check_code(blobs.path(source["code"])) == ["net.py"]
    assert version.spec["weights"] in blobs.digests()
    with pytest.raises(NotFound, match="Folder not found"):
        published(client, Mlp().eval(), code=tmp_path / "absent", entry="net:build")


def test_the_server_judges_the_fields_of_the_spec(client: Client, blobs: Blobs) -> None:
    with pytest.raises(InvalidInput) as caught:
        published(client, Mlp().eval(), limits={"seconds": 1}, checks={"tolerance": 9})
    assert {item.path for item in caught.value.details} == {"limits.seconds", "checks.tolerance"}
    assert blobs.digests(), "uploaded first, and used again by the next try"


def test_what_belongs_to_the_other_kind_is_refused_before_anything_is_done(client: Client) -> None:
    publish: Any = client.publish
    model = Mlp().eval()
    with pytest.raises(InvalidInput, match='name="team/model"'):
        publish(model, (X,))
    with pytest.raises(InvalidInput, match="Did you mean dynamic_shapes"):
        publish(model, (X,), name="tiny/mlp", dynamic_shape=SHAPES)
    with pytest.raises(InvalidInput, match=r"\(x,\)"):
        publish(model, X, name="tiny/mlp")
    with pytest.raises(
        InvalidInput, match="args and kwargs cannot be combined with a spec, which has its own inputs"
    ):
        publish(a_spec(), (X,))
    with pytest.raises(InvalidInput, match="The options are"):
        publish(a_spec(), name="tiny/mlp")
    with pytest.raises(InvalidInput, match="Expected a spec or a model, got Tensor"):
        publish(X)
    with pytest.raises(InvalidInput, match="got a dict of tensors"):
        publish(model.state_dict(), X, name="tiny/mlp")
    with pytest.raises(InvalidInput, match="kwargs"):
        publish(model, (X,), [X], name="tiny/mlp")


def test_publishing_a_model_needs_a_token(client: Client, blobs: Blobs) -> None:
    with pt2hub.Client(url=client.config.url, token="wrong") as stranger, pytest.raises(Unauthorized):
        published(stranger, Mlp().eval())
    assert not blobs.digests()


# -- the handle ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("environ", "blobs")
def test_the_handle_says_how_to_wait_and_is_a_version_in_json() -> None:
    version = pt2hub.publish(Mlp().eval(), (X,), name="tiny/mlp", dynamic_shapes=SHAPES)
    assert str(version).splitlines()[0] == "tiny/mlp@1  pending"
    assert "To wait for it: .wait()" in repr(version)
    assert "<b>tiny/mlp@1" in version._repr_html_()
    document = json.loads(json.dumps(encode(version)))
    assert encode(decode(VersionView, document)) == document
    copied = pickle.loads(pickle.dumps(version))
    assert copied == version
    assert b"pt2_" not in pickle.dumps(version), "a token stays in its process"
    with pytest.raises(NotReady):
        copied.load()


@pytest.mark.usefixtures("environ")
def test_waiting_follows_the_builds_to_their_end(served: Registry) -> None:
    version = pt2hub.publish(a_spec(targets=[HERE]))
    claim = served.claim(version.builds[0].id)
    events: list[BuildEvent] = []

    def end_after_the_first(event: BuildEvent) -> None:
        if not events:
            served.services.builds.fail(claim, NotFound("no such weights"))
        events.append(event)

    ended = version.wait(on_event=end_after_the_first)
    assert isinstance(ended, Published)
    assert (ended.builds[0].state, ended.readiness, ended.created) == (BuildState.FAILED, "failed", True)
    assert events[-1].build.state == BuildState.FAILED
    assert ended.wait() == ended, "it is over"
    assert isinstance(pt2hub.publish(a_spec(targets=[HERE]), wait=True), Published)


def test_waiting_ends_with_its_time_and_the_builds_go_on(client: Client, served: Registry) -> None:
    version = client.publish(a_spec(targets=[HERE]))
    began = time.monotonic()
    with pytest.raises(BuildActive, match=rf"{HERE} is queued") as caught:
        version.wait(timeout=0.5)
    assert 0.5 <= time.monotonic() - began < 15
    assert caught.value.where == "vision/resnet18@1"
    assert version.builds[0].id in str(caught.value)
    assert client.builds.get(version.builds[0].id).state == BuildState.QUEUED
    published = threading.Timer(0.3, served.published, [version])
    published.start()
    assert version.wait(timeout=30).readiness == "ready"
    published.join()
    assert version.pull().code.is_file()


# -- files of exported programs --------------------------------------------------------------------------


@pytest.mark.usefixtures("environ")
def test_the_command_line_takes_a_saved_program(
    blobs: Blobs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = torch.export.export(Mlp().eval(), (X,), dynamic_shapes={"x": {0: Dim("b", min=1, max=64)}})
    file, spec = tmp_path / "model.pt2", tmp_path / "spec.json"
    torch.export.save(program, file)
    inputs = [{"name": "x", "shape": ["batch", 8], "generate": {"normal": {}}}]
    document = {"model": "tiny/mlp", "inputs": inputs, "dims": {"batch": {"max": 64, "example": 4}}}
    spec.write_text(json.dumps(document))
    assert cli.run(["publish", str(spec), "--program", str(file), "--json"]) == 0
    version = decode(VersionView, json.loads(capsys.readouterr().out))
    assert blobs.digests() == {version.spec["source"]["program"], version.spec["weights"]}
    again = pt2hub.publish(document, program=file)
    assert (again.number, again.created) == (version.number, False)
    spec.write_text(json.dumps(document | {"source": {"factory": "torchvision.models:resnet18"}}))
    assert cli.run(["publish", str(spec), "--program", str(file)]) == 1
    assert "factory and program" in capsys.readouterr().err


def test_other_weights_go_before_those_of_the_program(client: Client, blobs: Blobs, tmp_path: Path) -> None:
    file, other = tmp_path / "model.pt2", tmp_path / "other.safetensors"
    torch.export.save(torch.export.export(Mlp().eval(), (X,)), file)
    first = client.publish(Mlp().eval(), (X,), name="tiny/other")
    other.write_bytes(blobs.path(first.spec["weights"]).read_bytes())
    document = {"model": "tiny/mlp", "inputs": [{"name": "x", "shape": [4, 8], "generate": {"normal": {}}}]}
    version = client.publish(document, program=file, weights=other)
    assert version.spec["weights"] == first.spec["weights"]
    assert version.spec["source"] == first.spec["source"]


@pytest.mark.usefixtures("blobs")
def test_publishing_specs_and_saved_programs_imports_no_torch(client: Client, tmp_path: Path) -> None:
    file = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(Mlp().eval(), (X,)), file)
    program = """
import sys, pt2hub
from pt2hub.client.config import ClientConfig
from pathlib import Path
home, url, token, file = sys.argv[1:]
document = {"model": "tiny/mlp", "inputs": [{"name": "x", "shape": [4, 8], "generate": {"normal": {}}}]}
with pt2hub.Client(ClientConfig(home=Path(home), url=url, token=token)) as client:
    print(client.publish(document, program=file).reference)
    try:
        client.publish(object())
    except pt2hub.errors.InvalidInput as exc:
        print(exc.message)
print({"torch", "pydantic", "numpy", "safetensors"} & set(sys.modules))
"""
    config = client.config
    ended = subprocess.run(
        [sys.executable, "-c", program, str(config.home), config.url, str(config.token), str(file)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.splitlines() == ["tiny/mlp@1", "Expected a spec or a model, got object", "set()"]


def test_a_function_without_torch_is_told_what_to_install(client: Client) -> None:
    program = """
import sys, pt2hub
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = classmethod(lambda cls, name, *rest: None if name == "torch" else find(name, *rest))
try:
    pt2hub.publish(lambda x: x, name="tiny/mlp")
except pt2hub.errors.BadConfiguration as exc:
    print(exc.message)
"""
    del client
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "Publishing a model requires the package torch, which is not installed\n"


@pytest.mark.usefixtures("environ", "blobs")
def test_the_examples_of_the_how_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    published = []
    for example in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        exec(compile(example, PAGE.name, "exec"), names)
        published.append(names["version"].reference)
    assert published == [
        "demo/classifier@1",
        "demo/matcher@1",
        "demo/classifier@2",
        "demo/classifier@3",
        "demo/classifier@4",
    ]
    assert (tmp_path / "classifier.pt2").is_file()
