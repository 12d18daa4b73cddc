"""Entry of a worker's child process: imports what its role needs, waits for one job, does it, ends.

`python -m pt2hub_workers.inside.child ROLE`, with the channel inherited. A child is used once and never
forked after torch ran an operator (facts/aoti.md, section 4).
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from pt2hub.errors import (
    ExportFailed,
    InternalError,
    ModelInterferes,
    Pt2hubError,
    TransientError,
    UsageError,
)
from pt2hub_workers.inside.channel import CHANNEL_LOST, Channel
from pt2hub_workers.inside.integrity import OwnFunctions
from pt2hub_workers.inside.places import is_models
from pt2hub_workers.inside.shortage import shortage

Work: TypeAlias = Callable[[dict[str, Any], Channel], dict[str, Any]]
"""Does the one job and returns its result."""


def main(role: str) -> None:
    """Prepares, reports readiness, does one job.

    Args:
        role: `build`, `gate`, `measure`, `baselines`, `judge` or `headers`.
    """
    channel = Channel.inherited()
    work = _ROLES[role]()
    own = OwnFunctions()
    channel.send("ready")
    try:
        message = channel.receive()
    except ModelInterferes:
        return  # no model was here yet: the worker ended, or wants no job done
    try:
        _do(work, message, channel, own, role)
    except OSError:  # nothing can be told: the model's code closed the channel, or the worker is gone
        traceback.print_exc()
        sys.exit(CHANNEL_LOST)


def _do(work: Work, message: dict[str, Any], channel: Channel, own: OwnFunctions, role: str) -> None:
    """Does the job and tells how it ended.

    Raises:
        OSError: The channel takes nothing more.
    """
    try:
        value = work(message, channel)
        own.check(role)
        channel.send("result", value=value)
    except SystemExit as ended:  # else the parent would see a process that ends for no reason
        said = f"the model's code called sys.exit({'' if ended.code is None else repr(ended.code)})"
        tell(channel, ExportFailed(said, where=role, hint="A model must leave the process alone."), role)
    except Exception as error:  # noqa: BLE001  # the last resort: whatever it is, the build must say it
        tell(channel, _cause(error, own, role), role)


def _cause(error: Exception, own: OwnFunctions, role: str) -> Exception:
    """The error, or the interference that explains one which would be a defect of ours."""
    if not isinstance(error, UsageError | TransientError):
        try:
            own.check(role)
        except ModelInterferes as interferes:
            interferes.__cause__ = error
            return interferes
    return error


def tell(channel: Channel, error: Exception, role: str) -> None:
    """Tells the parent what went wrong, and the log where.

    Args:
        channel: To the parent.
        error: What was raised; one that is not ours is a defect of ours.
        role: What this process is.
    """
    known = isinstance(error, Pt2hubError)
    with contextlib.suppress(MemoryError):
        # An error that names the line says all of it already.
        if isinstance(error, Pt2hubError) and "line" not in error.context and (found := _in_the_model(error)):
            channel.log(found, "output")
        channel.log("".join(traceback.format_exception(error)), "compiler" if known else "error")
    if not isinstance(error, TransientError):
        error = shortage(error, role) or error
    if not isinstance(error, Pt2hubError):
        error = InternalError(f"{type(error).__name__}: {error}", where=role)
    channel.send("error", error=error.as_dict())


def _in_the_model(error: Exception) -> str:
    """The part of a traceback that its author looks for: neither ours nor torch's nor Python's."""
    cause = error.__cause__
    if cause is None:
        return ""
    own = [frame for frame in traceback.extract_tb(cause.__traceback__) if is_models(frame.filename)]
    head = "Traceback (most recent call last), the model's own part:\n"
    lines = [*traceback.format_list(own), *traceback.format_exception_only(cause)]
    return "".join([head, *lines]) if own else ""


def _import_for_models() -> None:
    """Import what models are built and compiled with."""
    from pt2hub.operators import declare_torchvision

    os.environ.setdefault(
        "HF_HUB_OFFLINE", "1"
    )  # else it retries for most of a minute where there is no network
    declare_torchvision()
    import torch.export
    import torchvision

    del torch, torchvision


def _import_ahead() -> None:
    """Import what torch itself imports in its first export and compile: 560 modules, half a second of every build."""
    for name in ("torch.export._trace", "torch._inductor.compile_fx"):
        with contextlib.suppress(ImportError):  # private, so another torch may have it elsewhere
            importlib.import_module(name)


def _prepare_build() -> Work:
    _import_for_models()
    import torch._inductor.package

    _import_ahead()

    from pt2hub_workers.inside import build
    from pt2hub_workers.inside.compiling import CompilerCount

    del torch

    def work(message: dict[str, Any], channel: Channel) -> dict[str, Any]:
        job = build.Job.read(message)
        _settle_in(job.directory)
        return build.Build(job, channel, CompilerCount(os.environ.get("CXX"))).run()

    return work


def _prepare_baselines() -> Work:
    _import_for_models()
    from pt2hub_workers.inside import baselines

    def work(message: dict[str, Any], channel: Channel) -> dict[str, Any]:
        _settle_in(Path(message["directory"]))
        return baselines.run(message, channel)

    return work


def _settle_in(directory: Path) -> None:
    """Have the compiler keep its files in the job's directory, and use the prepared headers."""
    from pt2hub_workers.inside import headers
    from pt2hub_workers.inside.build import isolate_caches

    isolate_caches(directory)
    headers.use_prepared(os.environ, directory / "cache" / "precompiled_headers")


def _prepare_gate() -> Work:
    from pt2hub_workers.inside import gate

    def work(message: dict[str, Any], channel: Channel) -> dict[str, Any]:
        os.environ["TMPDIR"] = str(Path(message["directory"]) / "tmp")
        return gate.run(message, channel)

    return work


def _prepare_measure() -> Work:
    os.environ.setdefault(
        "KINETO_LOG_LEVEL", "99"
    )  # else the profiler prints its own steps into the build's log
    from pt2hub_workers.inside import replicate

    def work(message: dict[str, Any], channel: Channel) -> dict[str, Any]:
        os.environ["TMPDIR"] = str(Path(message["directory"]) / "tmp")
        return replicate.run(message, channel)

    return work


def _prepare_headers() -> Work:
    from pt2hub_workers.inside import headers

    return headers.compile_headers


def _prepare_judge() -> Work:
    from pt2hub_workers.inside import judging  # numpy, and no torch: the model's code never runs here

    return judging.judge


_ROLES: dict[str, Callable[[], Work]] = {
    "build": _prepare_build,
    "gate": _prepare_gate,
    "measure": _prepare_measure,
    "baselines": _prepare_baselines,
    "judge": _prepare_judge,
    "headers": _prepare_headers,
}

if __name__ == "__main__":
    main(sys.argv[1])
