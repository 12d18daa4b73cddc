"""The caller's eager model, until an artifact is built."""

from __future__ import annotations

import threading
import warnings
from typing import TYPE_CHECKING, Any, cast

import pytest

from pt2hub.client.fallback_model import FallbackModel
from pt2hub.client.machine.host import CompatibilityWarning
from pt2hub.errors import Incompatible, InternalError, NotReady

if TYPE_CHECKING:
    from collections.abc import Callable

    from pt2hub.client.artifacts.loader import LoadedModel

REFERENCE = "team/net@3"
MISSING = Incompatible("No artifact of the version runs on this machine", where=REFERENCE)


def eager(x: int, *, scale: int = 1) -> tuple[str, int]:
    return "eager", x * scale


def artifact(x: int, *, scale: int = 1) -> tuple[str, int]:
    return "artifact", x * scale


class Loading:
    """A load that a test lets end."""

    def __init__(self, outcome: Callable[[], Any]) -> None:
        self.may_end = threading.Event()
        self._outcome = outcome

    def __call__(self) -> LoadedModel:
        assert self.may_end.wait(30)
        return cast("LoadedModel", self._outcome())


def failing(error: Exception) -> Callable[[], Any]:
    def fail() -> Any:
        raise error

    return fail


def test_the_eager_model_is_called_until_the_artifact_is_loaded() -> None:
    load = Loading(lambda: artifact)
    with pytest.warns(CompatibilityWarning, match="team/net@3 runs the caller's eager model until") as told:
        model = FallbackModel(eager, load, MISSING, REFERENCE)
    assert len(told) == 1
    assert "No artifact of the version runs on this machine" in str(told[0].message)
    assert (model(2, scale=3), model.loaded, model.error) == (("eager", 6), None, None)
    assert model.wait(0.01) is None
    assert "eager, for now" in str(model)
    load.may_end.set()
    assert model.wait(30) is cast("LoadedModel", artifact)
    assert (model(2, scale=3), model.error) == (("artifact", 6), None)
    assert "artifact" in str(model)


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (NotReady("The build for torch2.13-cpu-x86_64_v3 is failed"), NotReady),
        (RuntimeError("out of luck"), InternalError),
    ],
)
def test_a_failure_is_told_and_the_eager_model_stays(raised: Exception, kind: type[Exception]) -> None:
    load = Loading(failing(raised))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", CompatibilityWarning)
        model = FallbackModel(eager, load, MISSING, REFERENCE)
        load.may_end.set()
        with pytest.raises(kind, match=str(raised)):
            model.wait(30)
        for thread in threading.enumerate():
            if thread.name == f"pt2hub-{REFERENCE}":
                thread.join(30)
    assert f"keeps running the caller's eager model: {model.error}" in str(told[1].message)
    assert model(1) == ("eager", 1)
    assert "the artifact failed" in str(model)
