"""A model that runs the caller's eager code until an artifact for this machine is built."""

from __future__ import annotations

import threading
import warnings
from typing import TYPE_CHECKING, Any

from pt2hub.client.machine.host import CompatibilityWarning
from pt2hub.errors import InternalError, Pt2hubError
from pt2hub.renderable import Renderable, Sheet

if TYPE_CHECKING:
    from collections.abc import Callable

    from pt2hub.client.artifacts.loader import LoadedModel


class FallbackModel(Renderable):
    """The caller's eager model, replaced by the artifact as soon as that is built and loaded.

    The artifact is built and loaded by a thread. Calls that have begun end on the model that they began on.

    Args:
        eager: The caller's model.
        load: Has the artifact built, and loads it; called in the thread.
        missing: Why there is no artifact.
    """

    def __init__(
        self, eager: Callable[..., Any], load: Callable[[], LoadedModel], missing: Pt2hubError, reference: str
    ) -> None:
        self._eager = eager
        self._reference = reference
        self._loaded: LoadedModel | None = None
        self._error: Pt2hubError | None = None
        self._ended = threading.Event()
        warnings.warn(
            f"{reference} runs the caller's eager model until its artifact is built: {missing}",
            CompatibilityWarning,
            stacklevel=2,
        )
        thread = threading.Thread(target=self._prepare, args=(load,), name=f"pt2hub-{reference}", daemon=True)
        thread.start()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the artifact if it is loaded, else the eager model."""
        model = self._eager if self._loaded is None else self._loaded
        return model(*args, **kwargs)

    @property
    def loaded(self) -> LoadedModel | None:
        """The loaded artifact; None until then."""
        return self._loaded

    @property
    def error(self) -> Pt2hubError | None:
        """Why the artifact could not be built or loaded; None if it was, or may still be."""
        return self._error

    def wait(self, timeout: float | None = None) -> LoadedModel | None:
        """Wait for the artifact.

        Args:
            timeout: Seconds to wait at most.

        Returns:
            The loaded artifact; None if the timeout expired first.

        Raises:
            Pt2hubError: The artifact could not be built or loaded.
        """
        self._ended.wait(timeout)
        if self._error is not None:
            raise self._error
        return self._loaded

    def _prepare(self, load: Callable[[], LoadedModel]) -> None:
        try:
            self._loaded = load()
        except Pt2hubError as exc:
            self._error = exc
        except Exception as exc:  # noqa: BLE001  # nobody else would see it: the thread has no caller
            self._error = InternalError(f"{type(exc).__name__}: {exc}", where=self._reference)
        finally:
            self._ended.set()
        if self._error is not None:
            warnings.warn(
                f"{self._reference} keeps running the caller's eager model: {self._error}",
                CompatibilityWarning,
                stacklevel=1,
            )

    def _sheet(self) -> Sheet:
        state = (
            "artifact" if self._loaded else "eager: the artifact failed" if self._error else "eager, for now"
        )
        return Sheet(self._reference, (("runs", state),), (str(self._error),) if self._error else ())
