"""A load on a machine that a version was not built for: a real worker builds the artifact, and the caller waits or runs on."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pytest
import torch

from pt2hub.client.artifacts.loader import LoadedModel
from pt2hub.client.fallback_model import FallbackModel
from pt2hub.client.machine.host import CompatibilityWarning
from pt2hub.domain.tokens import SERVER
from pt2hub.errors import BuildActive, NotReady
from pt2hub.server.config import ServerConfig
from support.artifacts import a_target
from support.workbench import tiny_spec
from support.working import PATIENCE

if TYPE_CHECKING:
    from pt2hub.client.client import Client
    from pt2hub.server.container import Container
    from support.working import Works

pytestmark = pytest.mark.compiles
ELSEWHERE = "torch1.13-cpu-x86_64"
"""A target that no worker of a test has."""
HERE = a_target().name
X = torch.ones(3, 8)


@pytest.fixture
def config(works: Works) -> ServerConfig:
    """The API has the services, the storage and the factories of the workers."""
    return ServerConfig.from_environ(works.environ)


@pytest.fixture
def container(works: Works) -> Container:
    return works.services


def submit(works: Works, seed: int) -> str:
    """A version for another machine."""
    source = {**tiny_spec()["source"], "seed": seed}
    spec = tiny_spec(source=source, targets=[ELSEWHERE], measure={"processes": 0})
    version = works.services.publish.submit(spec, by=SERVER)
    return f"{version.model}@{version.number}"


def eager(x: torch.Tensor) -> str:
    return f"eager, {len(x)} rows"


def test_a_missing_artifact_is_built_while_the_caller_runs_eagerly_or_waits(
    works: Works, client: Client
) -> None:
    first = submit(works, seed=1)
    with pytest.raises(NotReady):
        client.load(first)

    # Nobody builds yet: the wait is bounded, and says why nothing happens.
    with (
        pytest.warns(CompatibilityWarning, match="Waiting for .* no worker ever offered this target"),
        pytest.raises(BuildActive),
    ):
        client.load(first, on_missing="build", build_timeout=0.5)

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", CompatibilityWarning)
        model = client.load(first, on_missing=eager)
        assert isinstance(model, FallbackModel)
        assert model(X) == "eager, 3 rows"
        works.start()
        loaded = model.wait(PATIENCE)
    texts = [str(item.message) for item in told]
    assert texts[0].startswith(f"{first} runs the caller's eager model until its artifact is built")
    assert not [text for text in texts if "keeps running" in text]
    assert isinstance(loaded, LoadedModel)
    outputs = model(X)
    assert torch.equal(outputs, loaded(X))
    assert loaded.info.target == HERE

    # The version has the artifact now, and its readiness is that of its first submission.
    again = client.load(first, on_missing="build")
    assert torch.equal(again(X), outputs)
    version = client.versions.get("tiny/mlp", 1)
    assert [(build.target, build.state) for build in version.builds] == [
        (ELSEWHERE, "queued"),
        (HERE, "succeeded"),
    ]

    # Other weights reuse the code: the caller waits for seconds.
    second = client.load(submit(works, seed=2), on_missing="build", build_timeout=PATIENCE)
    assert second.info.number == 2
    assert not torch.equal(second(X), outputs)
