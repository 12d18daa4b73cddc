"""Pretrained weights by name, fetched from a server that stands for the hosts of torchvision and the hub.

Nothing here reaches another machine: the libraries are real, and pointed to 127.0.0.1.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import huggingface_hub.constants
import pytest
import safetensors.torch
import torch

from pt2hub.cli import main as cli
from pt2hub.client.client import Client
from pt2hub.client.config import ClientConfig
from pt2hub.client.publishing.pretrained.fetch import fetch
from pt2hub.domain.digests import digest_bytes
from pt2hub.errors import BadConfiguration, NotFound, UnsupportedTensor, WeightsUnavailable
from pt2hub.torchvision_operators import declare_torchvision
from support.registry import a_spec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.elsewhere import Elsewhere
    from support.registry import Registry

declare_torchvision()
import torchvision.models  # noqa: E402  # after its operators are declared
from torchvision.models import Weights, WeightsEnum  # noqa: E402  # likewise

pytest_plugins = ["support.elsewhere"]

TENSORS = {"net.weight": torch.arange(6.0).reshape(2, 3), "net.bias": torch.ones(2, dtype=torch.bfloat16)}
OTHERS = {name: tensor + 1 for name, tensor in TENSORS.items()}
WHOLE = safetensors.torch.save(TENSORS)
"""The safetensors file of these tensors, as the library writes it."""
HUB_FILE = safetensors.torch.save(TENSORS, metadata={"format": "pt"})


def pickled(value: object) -> bytes:
    out = io.BytesIO()
    torch.save(value, out)
    return out.getvalue()


def list_weights(monkeypatch: pytest.MonkeyPatch, elsewhere: Elsewhere, value: object, **how: str) -> str:
    """Adds weights to torchvision's list, kept on the server under a name with their digest; their path."""
    data = pickled(value)
    path = f"/models/tiny-{how.get('digest') or digest_bytes(data).partition(':')[2][:8]}.pth"
    weights = Weights(url=f"https://elsewhere.invalid{path}", transforms=object, meta={})

    class Tiny_Weights(WeightsEnum):  # type: ignore[misc]  # noqa: N801  # untyped; named as torchvision does
        FIRST = weights
        DEFAULT = FIRST

    monkeypatch.setattr(torchvision.models, "Tiny_Weights", Tiny_Weights, raising=False)
    elsewhere.files[f"/mirror{path}"] = data
    return path


@pytest.fixture
def mirrored(client: Client, elsewhere: Elsewhere) -> Client:
    return Client(replace(client.config, torchvision_mirror=f"{elsewhere.url}/mirror/"))


def test_weights_of_torchvision_become_safetensors_under_the_name_that_cannot_move(
    mirrored: Client, served: Registry, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.worker("w1")
    path = list_weights(monkeypatch, elsewhere, TENSORS)
    version = mirrored.publish(a_spec(), weights="torchvision:Tiny_Weights.DEFAULT")
    assert version.weights == digest_bytes(WHOLE)
    assert version.pins["weights_from"] == "torchvision:Tiny_Weights.FIRST"
    assert [asked for asked, _ in elsewhere.asked] == [f"GET /mirror{path}"]
    again = mirrored.publish(a_spec(weights="torchvision:Tiny_Weights.FIRST"))
    assert (again.number, again.created, len(elsewhere.asked)) == (
        version.number,
        False,
        1,
    )  # from torch's cache


def test_weights_of_the_hub_are_named_in_a_specs_file_and_uploaded_byte_for_byte(
    client: Client, served: Registry, elsewhere: Elsewhere, tmp_path: Path
) -> None:
    served.worker("w1")
    sha = elsewhere.repository("team/net").commit({"model.safetensors": HUB_FILE, "config.json": b"{}"})
    file = tmp_path / "spec.yaml"
    file.write_text(json.dumps(a_spec(weights="hf:team/net@main")))
    version = client.publish(file)
    assert version.weights == digest_bytes(HUB_FILE)
    assert version.pins["weights_from"] == f"hf:team/net@{sha}#model.safetensors"
    (tmp_path / "same.safetensors").write_bytes(HUB_FILE)
    stale = a_spec(weights_from="hf:team/other@main")
    again = client.publish(stale, weights=tmp_path / "same.safetensors")
    assert (again.number, again.created) == (version.number, False)  # where from is no part of what it is


def test_a_revision_that_moved_is_another_pin_and_another_version(
    client: Client, served: Registry, elsewhere: Elsewhere
) -> None:
    served.worker("w1")
    repository = elsewhere.repository("team/net")
    first = repository.commit({"model.safetensors": WHOLE})
    one = client.publish(a_spec(), weights="hf:team/net")
    second = repository.commit({"model.safetensors": safetensors.torch.save(OTHERS)})
    two = client.publish(a_spec(), weights="hf:team/net")
    pinned = client.publish(a_spec(), weights=one.pins["weights_from"])
    assert [version.pins["weights_from"].partition("#")[0] for version in (one, two)] == [
        f"hf:team/net@{first}",
        f"hf:team/net@{second}",
    ]
    assert [one.number, two.number, pinned.number] == [1, 2, 1]


def test_weights_in_several_files_become_the_file_they_would_be_in_one(
    elsewhere: Elsewhere, tmp_path: Path
) -> None:
    shards = {
        "net.weight": "model-00001-of-00002.safetensors",
        "net.bias": "model-00002-of-00002.safetensors",
    }
    files = {f"part/{file}": safetensors.torch.save({name: TENSORS[name]}) for name, file in shards.items()}
    index = json.dumps({"metadata": {"total_size": 28}, "weight_map": shards}).encode()
    sha = elsewhere.repository("team/net").commit(files | {"part/model.safetensors.index.json": index})
    fetched = fetch("hf:team/net#part/model.safetensors.index.json", tmp_path)
    assert fetched.path.read_bytes() == WHOLE
    assert fetched.pinned == f"hf:team/net@{sha}#part/model.safetensors.index.json"


def test_a_token_opens_a_private_repository_and_goes_to_no_other_host(
    elsewhere: Elsewhere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere.repository("team/secret", token="hf_right").commit({"model.safetensors": WHOLE})
    with pytest.raises(
        WeightsUnavailable, match="Repository team/secret not found, or not accessible"
    ) as caught:
        fetch("hf:team/secret", tmp_path)
    assert "HF_TOKEN" in (caught.value.hint or "")
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    assert fetch("hf:team/secret", tmp_path).path.read_bytes() == WHOLE
    sent = {asked.split("/")[1]: token for asked, token in elsewhere.asked}
    assert sent == {"api": "hf_right", "team": "hf_right", "cdn": None}


def test_tensors_in_one_memory_are_written_apart(
    mirrored: Client, elsewhere: Elsewhere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tied = torch.arange(6.0).reshape(2, 3)
    list_weights(monkeypatch, elsewhere, {"a": tied, "b": tied, "c": tied.t(), "d": tied[1]})
    fetched = fetch(
        "torchvision:Tiny_Weights.FIRST", tmp_path, mirror=mirrored.config.torchvision_mirror, progress=False
    )
    found = safetensors.torch.load_file(fetched.path)
    expected = {"a": tied, "b": tied, "c": tied.t(), "d": tied[1]}
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def wrong_bytes(elsewhere: Elsewhere) -> str:
    elsewhere.files["/mirror/models/resnet18-f37072fd.pth"] = pickled(TENSORS)
    return "torchvision:ResNet18_Weights.DEFAULT"


def nothing_there(_: Elsewhere) -> str:
    return "torchvision:ResNet18_Weights.DEFAULT"


def near_name(_: Elsewhere) -> str:
    return "torchvision:ResNet18_Weights.IMAGENET1K_V2"


def models_name(_: Elsewhere) -> str:
    return "torchvision:resnet18.DEFAULT"


def no_form(_: Elsewhere) -> str:
    return "torchvision:resnet18"


def no_repository(elsewhere: Elsewhere) -> str:
    elsewhere.repository("team/net")
    return "hf:team/nte@main"


def no_revision(elsewhere: Elsewhere) -> str:
    elsewhere.repository("team/net").commit({"model.safetensors": WHOLE})
    return "hf:team/net@v9"


def gated(elsewhere: Elsewhere) -> str:
    elsewhere.repository("team/net", token="hf_other", gated=True).commit({"model.safetensors": WHOLE})
    os.environ["HF_TOKEN"] = "hf_mine"
    return "hf:team/net"


def refused_token(elsewhere: Elsewhere) -> str:
    elsewhere.repository("team/net", token="hf_other").commit({"model.safetensors": WHOLE})
    os.environ["HF_TOKEN"] = "hf_mine"
    return "hf:team/net"


def broken_server(elsewhere: Elsewhere) -> str:
    elsewhere.status = 500
    return "hf:team/net"


def damaged(elsewhere: Elsewhere) -> str:
    elsewhere.repository("team/net").commit({"model.safetensors": WHOLE})
    elsewhere.arriving[WHOLE] = WHOLE[:-1] + b"!"
    return "hf:team/net"


def cut_short(elsewhere: Elsewhere) -> str:
    elsewhere.repository("team/net").commit({"model.safetensors": WHOLE})
    elsewhere.arriving[WHOLE] = WHOLE[:-4]
    return "hf:team/net"


def only_pickles(elsewhere: Elsewhere) -> str:
    elsewhere.repository("team/net").commit({"pytorch_model.bin": pickled(TENSORS)})
    return "hf:team/net"


def a_pickle(elsewhere: Elsewhere) -> str:
    elsewhere.repository("team/net").commit({"old/net.pt": pickled(TENSORS), "model.safetensors": WHOLE})
    return "hf:team/net#old/net.pt"


def other_files(elsewhere: Elsewhere) -> str:
    elsewhere.repository("team/net").commit({"best.safetensors": WHOLE})
    return "hf:team/net@main"


def misspelt_file(elsewhere: Elsewhere) -> str:
    elsewhere.repository("team/net").commit({"model.safetensors": WHOLE})
    return "hf:team/net#modl.safetensors"


def no_safetensors(elsewhere: Elsewhere) -> str:
    elsewhere.repository("team/net").commit({"model.safetensors": b"<html>not here</html>"})
    return "hf:team/net"


def no_index(elsewhere: Elsewhere) -> str:
    elsewhere.repository("team/net").commit({"model.safetensors.index.json": b"[]"})
    return "hf:team/net"


def missing_shard(elsewhere: Elsewhere) -> str:
    index = json.dumps({"weight_map": {"a": "model-1.safetensors"}}).encode()
    elsewhere.repository("team/net").commit({"model.safetensors.index.json": index})
    return "hf:team/net"


def shard_without_a_tensor(elsewhere: Elsewhere) -> str:
    index = json.dumps({"weight_map": {"a": "model-1.safetensors"}}).encode()
    elsewhere.repository("team/net").commit(
        {"model.safetensors.index.json": index, "model-1.safetensors": WHOLE}
    )
    return "hf:team/net"


def shard_outside(elsewhere: Elsewhere) -> str:
    index = json.dumps({"weight_map": {"a": "../../evil.safetensors"}}).encode()
    files = {"model.safetensors.index.json": index, "../../evil.safetensors": WHOLE}
    elsewhere.repository("team/net").commit(files)
    return "hf:team/net"


REFUSED: list[tuple[Callable[[Elsewhere], str], str, str]] = [
    (
        wrong_bytes,
        'is incomplete or does not match the digest in its name: .*expected "f37072fd"',
        "Try again",
    ),
    (nothing_there, r"resnet18-f37072fd\.pth answers 404", "PT2HUB_TORCHVISION_MIRROR"),
    (near_name, "no weights ResNet18_Weights.IMAGENET1K_V2", "torchvision:ResNet18_Weights.IMAGENET1K_V1"),
    (models_name, r"no weights resnet18\.DEFAULT", r"torchvision:ResNet18_Weights\."),
    (no_form, "Invalid weights name 'torchvision:resnet18'", r"\./hf:name"),
    (no_repository, "Repository team/nte", "HF_TOKEN"),
    (no_revision, "team/net has no revision v9", "a branch, a tag or a commit"),
    (gated, "team/net is gated", "request access"),
    (refused_token, "answers 403 for hf:team/net", "HF_TOKEN"),
    (broken_server, "answers 500 for hf:team/net", "HF_ENDPOINT"),
    (damaged, "does not match the hub's digest", "Delete /"),
    (cut_short, "cannot be fetched: .*size", "Try again"),
    (
        only_pickles,
        r"pytorch_model\.bin is not a safetensors file; pt2hub does not download pickles",
        "weights_only=True",
    ),
    (a_pickle, r"old/net\.pt is not a safetensors file", "safetensors.torch.save_file"),
    (other_files, r"no file model\.safetensors", r"hf:team/net@main#best\.safetensors"),
    (misspelt_file, r"no file modl\.safetensors", r"It has model\.safetensors"),
    (no_safetensors, "malformed safetensors file", "another file"),
    (no_index, "is not a valid index of safetensors files", "another file"),
    (missing_shard, r"lists model-1\.safetensors, which is not in the repository", "another file"),
    (shard_outside, "hf:team/net cannot be fetched", "Try again"),
    (shard_without_a_tensor, r"model-1\.safetensors lacks the tensor a", "another file"),
]


@pytest.mark.parametrize(
    ("prepare", "message", "hint"), REFUSED, ids=lambda item: getattr(item, "__name__", "")
)
def test_what_cannot_be_fetched_is_said_with_what_to_do(
    prepare: Callable[[Elsewhere], str],
    message: str,
    hint: str,
    elsewhere: Elsewhere,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_TOKEN", "")  # put back afterwards, whatever the case makes of it
    name = prepare(elsewhere)
    with pytest.raises(WeightsUnavailable, match=message) as caught:
        fetch(name, tmp_path, mirror=f"{elsewhere.url}/mirror")
    assert re.search(hint, caught.value.hint or "")
    assert (caught.value.where, caught.value.message.count("\n")) == ("weights", 0)
    assert not list(tmp_path.glob("*.safetensors"))


def test_a_name_in_a_specs_file_that_cannot_be_fetched_is_found_there(
    client: Client, elsewhere: Elsewhere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    elsewhere.repository("team/net")
    file = tmp_path / "spec.yaml"
    file.write_text("model: team/net\nweights: hf:team/nte@main\n")
    for name, value in {"HOME": tmp_path / "home", "URL": client.config.url}.items():
        monkeypatch.setenv(f"PT2HUB_{name}", str(value))
    assert cli.run(["publish", str(file)]) == 1
    assert f"{file}, line 2, column 1: weights: Repository team/nte" in capsys.readouterr().err


def test_a_mirror_that_is_no_address_is_refused() -> None:
    with pytest.raises(BadConfiguration) as caught:
        ClientConfig.from_environ({"PT2HUB_TORCHVISION_MIRROR": "file:///tmp"})
    assert caught.value.where == "PT2HUB_TORCHVISION_MIRROR"


@pytest.mark.parametrize("name", ["hf:team/net", "torchvision:ResNet18_Weights.DEFAULT"])
def test_a_server_that_is_away_is_said(
    name: str, elsewhere: Elsewhere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del elsewhere  # its settings are used, and it is not there
    nobody = "http://127.0.0.1:9"
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", nobody)
    with pytest.raises(WeightsUnavailable, match=r"cannot be fetched: .*refused") as caught:
        fetch(name, tmp_path, mirror=nobody)
    assert "Try again" in (caught.value.hint or "")


def test_weights_of_torchvision_that_run_code_or_have_no_form_are_refused(
    elsewhere: Elsewhere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = f"{elsewhere.url}/mirror"
    list_weights(monkeypatch, elsewhere, {"net": torch.nn.Linear(1, 1)})
    with pytest.raises(WeightsUnavailable, match="no weights that torch can read safely"):
        fetch("torchvision:Tiny_Weights.DEFAULT", tmp_path, mirror=mirror)
    list_weights(monkeypatch, elsewhere, {"net": {"deeper": torch.ones(1)}})
    with pytest.raises(WeightsUnavailable, match="contains no state_dict"):
        fetch("torchvision:Tiny_Weights.DEFAULT", tmp_path, mirror=mirror)
    list_weights(monkeypatch, elsewhere, {"net": torch.ones(2, 2).to_sparse()})
    with pytest.raises(UnsupportedTensor, match="net is quantised or sparse"):
        fetch("torchvision:Tiny_Weights.DEFAULT", tmp_path, mirror=mirror)


def test_a_file_in_torchs_cache_that_is_not_what_its_name_says_is_refused(
    elsewhere: Elsewhere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del elsewhere  # nobody is asked
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    cached = tmp_path / "hub" / "checkpoints" / "resnet18-f37072fd.pth"
    cached.parent.mkdir(parents=True)
    cached.write_bytes(b"half of it")
    with pytest.raises(WeightsUnavailable, match="does not match the digest in its name") as caught:
        fetch("torchvision:ResNet18_Weights.DEFAULT", tmp_path)
    assert "Delete the file" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("name", "absent"), [("hf:team/net", "huggingface_hub"), ("torchvision:A.B", "torchvision")]
)
def test_a_package_that_is_not_installed_is_named_with_how_to_get_it(
    name: str, absent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(BadConfiguration, match=f"require {absent}, which is not installed") as caught:
        fetch(name, tmp_path)
    assert caught.value.hint == f"pip install {absent}"


def test_what_is_fetched_is_shown_where_it_is_asked_for(
    elsewhere: Elsewhere, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere.repository("team/net").commit({"model.safetensors": WHOLE})
    fetch("hf:team/net", tmp_path, progress=True)
    assert capsys.readouterr().err.startswith("fetching hf:team/net\n")
    fetch("hf:team/net", tmp_path, progress=False)
    assert capsys.readouterr() == ("", "")


def test_a_file_whose_name_begins_like_a_name_is_still_a_file(
    client: Client, served: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.worker("w1")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hf:net").write_bytes(WHOLE)
    assert client.publish(a_spec(), weights="./hf:net").weights == digest_bytes(WHOLE)
    with pytest.raises(NotFound):
        client.publish(a_spec(), weights="./hf:other")


def test_the_command_line_takes_a_name_and_the_libraries_take_their_variables(
    client: Client, served: Registry, elsewhere: Elsewhere, tmp_path: Path
) -> None:
    served.worker("w1")
    sha = elsewhere.repository("team/net").commit({"model.safetensors": WHOLE})
    (tmp_path / "spec.json").write_text(json.dumps(a_spec()))
    ours = {
        "PT2HUB_HOME": str(tmp_path / "home"),
        "PT2HUB_URL": client.config.url,
        "HF_ENDPOINT": elsewhere.url,
    }
    theirs = {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_TELEMETRY": "1"}
    command = ["publish", str(tmp_path / "spec.json"), "--weights", "hf:team/net@main", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "pt2hub", *command],
        env=os.environ | ours | theirs | {"PT2HUB_TOKEN": str(client.config.token)},
        capture_output=True,
        text=True,
        check=False,
    )
    document: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert document["pins"]["weights_from"] == f"hf:team/net@{sha}#model.safetensors"
    assert document["weights"] == digest_bytes(WHOLE)
