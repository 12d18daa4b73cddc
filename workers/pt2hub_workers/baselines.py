"""Eager and torch.compile beside a published artifact: a sandboxed process builds the model from its source again."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from pt2hub.domain.codec import encode
from pt2hub.errors import OutputRefused, Pt2hubError
from pt2hub_workers.build_inputs import BuildInputs
from pt2hub_workers.children import ChildDied, ChildHung
from pt2hub_workers.messages import MAX_DETAIL, read_baselines, read_log
from pt2hub_workers.subjects import MAX_NOTE

if TYPE_CHECKING:
    from pt2hub.domain.builds import Claim
    from pt2hub.domain.measurements import Measurement
    from pt2hub_workers.attempt import Tools
    from pt2hub_workers.replicating import Bench
    from pt2hub_workers.subjects import Subject


class Baselines:
    """Times eager and torch.compile beside the artifact of one version."""

    def __init__(self, claim: Claim, tools: Tools, bench: Bench) -> None:
        """Prepare.

        Args:
            claim: The measuring job.
            tools: The worker's.
            bench: Where it is timed.
        """
        self._claim = claim
        self._tools = tools
        self._bench = bench
        self._asked = False

    def measure(self, artifact: Subject) -> tuple[list[Measurement], str | None]:
        """Time them.

        Args:
            artifact: The artifact.

        Returns:
            The figures and None; or no figures and why there are none: the artifact's own figures do not depend on them.

        Raises:
            Halted: The attempt was told to stop.
        """
        try:
            return self._measured(artifact), None
        except (Pt2hubError, OSError, ChildDied, ChildHung) as error:
            self._bench.halt.check()
            why = _why(error)[:MAX_NOTE]
            self._bench.listener.line(f"eager and torch.compile are not measured: {why}", "warning")
            return [], f"eager and torch.compile are not measured: {why}"
        finally:
            if not self._bench.halt.is_set():
                self._bench.become("shared")

    def _measured(self, artifact: Subject) -> list[Measurement]:
        with closing(self._bench.toolchain.take("baselines")) as hand:
            room = hand.room
            inputs = BuildInputs.of(self._claim, self._claim.weights)
            job = {
                "directory": str(room.inside),
                "spec": self._claim.spec,
                "request": artifact.request,
                "factories": list(self._tools.factories),
                "config": encode(artifact.config),
                "code": room.seen(room.give(artifact.code, "artifact-code.zip")),
                "layer": room.seen(room.give(artifact.weights, "artifact-weights.safetensors")),
                **inputs.fetch(room, self._tools.container.storage, self._bench.halt),
            }
            value = hand.work(
                job,
                on_event=self._on_event,
                on_output=self._bench.listener.printed,
                seconds=float(self._claim.spec.get("limits", {}).get("seconds", 3600)),
                halt=self._bench.halt,
            )
        return read_baselines(value)

    def _on_event(self, message: dict[str, Any]) -> None:
        """Give the device where it is asked for, once: nothing but timing comes after that."""
        text = message.get("text")
        if message["event"] == "progress" and isinstance(text, str):
            self._bench.listener.progress(text[:MAX_DETAIL] or "at work")
        elif message["event"] == "log":
            level, lines = read_log(message)
            for line in lines:
                self._bench.listener.line(line, level)
        elif message["event"] == "ask" and message.get("question") == "device" and not self._asked:
            self._asked = True
            self._bench.become("exclusive")
        else:
            raise OutputRefused(
                f"it sent {message['event'][:40]!r}, which has no place here", where="measure"
            )


def _why(error: Exception) -> str:
    match error:
        case ChildDied():
            return f"their process {error.how} during: {error.doing}"
        case ChildHung():
            return f"their process did not answer within {error.seconds:g} s during: {error.doing}"
        case Pt2hubError():
            return error.message
        case _:
            return str(error)
