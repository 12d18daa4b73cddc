"""Entry point of a worker's child process: imports what its role needs, waits for one job, does it and ends.

`python -m pt2hub_workers.inside.child ROLE`, with the channel inherited. A child is used once and never
forked after torch ran an operator (docs/facts/aoti.md#fork).
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from pt2hub.client.artifacts.imports import collector_paused
from pt2hub.errors import (
    ExportFailed,
    InternalError,
    ModelInterferes,
    Pt2hubError,
    TransientError,
    UsageError,
)
from pt2hub_workers.inside.builds.export.source_positions import is_models
from pt2hub_workers.inside.builds.integrity import OwnFunctions
from pt2hub_workers.inside.builds.shortage import find_shortage
from pt2hub_workers.inside.operations.channel import CHANNEL_LOST, Channel

Work: TypeAlias = Callable[[dict[str, Any], Channel], dict[str, Any]]
"""A function that does the job and returns its result."""


def main(role: str) -> None:
    """Prepare for a role, report readiness and do one job.

    Args:
        role: `build`, `artifact`, `measure`, `baselines`, `verify` or `headers`.
    """
    channel = Channel.inherit()
    with collector_paused():  # a quarter of the import's time
        work = _ROLES[role]()
    gc.freeze()  # each full collection over the imported objects takes most of a second
    own = OwnFunctions()
    channel.send("ready")
    try:
        message = channel.receive()
    except ModelInterferes:
        return  # no model ran here yet: the worker ended, or has no job
    try:
        _do(work, message, channel, own, role)
    except OSError:  # nothing can be sent: the model's code closed the channel, or the worker is gone
        traceback.print_exc()
        sys.exit(CHANNEL_LOST)


def _do(work: Work, message: dict[str, Any], channel: Channel, own: OwnFunctions, role: str) -> None:
    """Do the job and report its result or error.

    Raises:
        OSError: The channel is closed.
    """
    try:
        value = work(message, channel)
        own.check(role)
        channel.send("result", value=value)
    except SystemExit as ended:  # else the parent would see a process that ends without a reason
        text = f"the model's code called sys.exit({'' if ended.code is None else repr(ended.code)})"
        report_error(channel, ExportFailed(text, where=role, hint="A model must not end its process."), role)
    except Exception as error:  # noqa: BLE001  # the last resort: the build must report every error
        report_error(channel, _find_cause(error, own, role), role)


def _find_cause(error: Exception, own: OwnFunctions, role: str) -> Exception:
    """Return the error; an apparent defect of pt2hub may be explained by the model's interference."""
    if not isinstance(error, UsageError | TransientError):
        try:
            own.check(role)
        except ModelInterferes as interferes:
            interferes.__cause__ = error
            return interferes
    return error


def report_error(channel: Channel, error: Exception, role: str) -> None:
    """Send an error to the parent, and its traceback to the log."""
    known = isinstance(error, Pt2hubError)
    with contextlib.suppress(MemoryError):
        # An error that names the line needs no traceback.
        if (
            isinstance(error, Pt2hubError)
            and "line" not in error.context
            and (found := _model_traceback(error))
        ):
            channel.log(found, "output")
        channel.log("".join(traceback.format_exception(error)), "compiler" if known else "error")
    if not isinstance(error, TransientError):
        error = find_shortage(error, role) or error
    if not isinstance(error, Pt2hubError):
        error = InternalError(f"{type(error).__name__}: {error}", where=role)
    channel.send("error", error=error.as_dict())


def _model_traceback(error: Exception) -> str:
    """Format the model's own part of a traceback, without pt2hub, torch and Python."""
    cause = error.__cause__
    if cause is None:
        return ""
    own = [frame for frame in traceback.extract_tb(cause.__traceback__) if is_models(frame.filename)]
    head = "Traceback (most recent call last), the model's own part:\n"
    lines = [*traceback.format_list(own), *traceback.format_exception_only(cause)]
    return "".join([head, *lines]) if own else ""


def _import_for_models() -> None:
    """Import the libraries that models are built and compiled with."""
    from pt2hub.torchvision_operators import declare_torchvision

    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # else it retries for most of a minute without a network
    declare_torchvision()
    import torch.export
    import torchvision

    del torch, torchvision


def _import_ahead() -> None:
    """Import the modules of torch's first export and compile: 560 modules, half a second of every build."""
    for name in ("torch.export._trace", "torch._inductor.compile_fx"):
        with contextlib.suppress(ImportError):  # private, so another torch may lack it
            importlib.import_module(name)


def _prepare_build() -> Work:
    _import_for_models()
    import torch._inductor.package

    _import_ahead()

    from pt2hub_workers.inside.builds import build
    from pt2hub_workers.inside.builds.compile.compiler import CompilerCount
    from pt2hub_workers.inside.builds.job import Job

    del torch

    def work(message: dict[str, Any], channel: Channel) -> dict[str, Any]:
        job = Job.read(message)
        _use_workspace(job.directory)
        return build.Build(job, channel, CompilerCount(os.environ.get("CXX"))).run()

    return work


def _prepare_baselines() -> Work:
    _quiet_profiler()
    _import_for_models()
    from pt2hub_workers.inside.performance import baselines

    def work(message: dict[str, Any], channel: Channel) -> dict[str, Any]:
        _use_workspace(Path(message["directory"]))
        return baselines.run_baselines(message, channel)

    return work


def _quiet_profiler() -> None:
    """Keep the profiler's own steps out of the build's log; it reads the setting when torch is imported."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")


def _use_workspace(directory: Path) -> None:
    """Direct the compiler's files into the workspace, and use the prepared headers and probes."""
    from pt2hub_workers.inside.builds.compile import precompiled_headers
    from pt2hub_workers.inside.builds.compile.caches import isolate_caches

    isolate_caches(directory)
    cache = directory / "cache"
    precompiled_headers.use_prepared(os.environ, cache / "precompiled_headers")


def _prepare_artifact() -> Work:
    from pt2hub_workers.inside.builds.verify import artifact_process

    def work(message: dict[str, Any], channel: Channel) -> dict[str, Any]:
        os.environ["TMPDIR"] = str(Path(message["directory"]) / "tmp")
        return artifact_process.run_artifact(message, channel)

    return work


def _prepare_measure() -> Work:
    _quiet_profiler()
    from pt2hub_workers.inside.performance import replicate

    def work(message: dict[str, Any], channel: Channel) -> dict[str, Any]:
        os.environ["TMPDIR"] = str(Path(message["directory"]) / "tmp")
        return replicate.run_replicate(message, channel)

    return work


def _prepare_headers() -> Work:
    from pt2hub_workers.inside.builds.compile import precompiled_headers

    return precompiled_headers.compile_headers


def _prepare_verify() -> Work:
    from pt2hub_workers.inside.builds.verify import (
        verifier,  # numpy, no torch: no code of the model runs here
    )

    return verifier.verify_outputs


_ROLES: dict[str, Callable[[], Work]] = {
    "build": _prepare_build,
    "artifact": _prepare_artifact,
    "measure": _prepare_measure,
    "baselines": _prepare_baselines,
    "verify": _prepare_verify,
    "headers": _prepare_headers,
}

if __name__ == "__main__":
    main(sys.argv[1])
