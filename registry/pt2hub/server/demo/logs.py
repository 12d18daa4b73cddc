"""What the logs of the story's attempts say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.builds import LogLine
from pt2hub.server.demo.failures import KINDS
from pt2hub.server.demo.kernels import tuning
from pt2hub.server.demo.models import chance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.server.demo.failures import Told
    from pt2hub.server.demo.plan import Attempt, Build, Version

_ENDINGS = {
    "cancelled": "cancelled: every process of the build was killed",
    "handed_back": "the worker stops: every process of the build was killed, and the build goes back to the queue",
}


def lines(version: Version, build: Build, attempt: Attempt) -> Iterator[LogLine]:
    """The log of an attempt.

    Args:
        version: Of what.
        build: On which target.
        attempt: Which of its attempts.
    """
    at, seq = attempt.began.timestamp(), 0
    last = attempt.steps[-1][0]
    for name, seconds in attempt.steps:
        over = bool(attempt.kind) and name == last
        told = [*_of_step(version, build, name), *(_of_failure(attempt) if over else ())]
        if not over:
            told.append(("info", f"{name} took {seconds:.2f} s"))
        for place, (level, text) in enumerate(told, 1):
            seq += 1
            yield LogLine(seq, round(at + seconds * place / (len(told) + 0.01), 3), name, level, text)
        at += seconds


def _of_step(version: Version, build: Build, name: str) -> Iterator[Told]:
    luck = chance(build.id, name, "log")
    if name == "export":
        yield (
            "output",
            f"\x1b[32mINFO\x1b[0m {version.model.title}: {len(version.model.tensors)} tensors are loaded",
        )
        yield "output", "\x1b[2mnothing of this model is trained while it is built\x1b[0m"
        if luck.random() < 0.3:  # noqa: PLR2004  # a share
            yield (
                "warning",
                "UserWarning: The use of `x.T` on tensors of dimension other than 2 is deprecated",
            )
    elif name == "key":
        what = "code is reused" if build.reuses else "no code yet, compiling"
        yield "info", f"program key {build.key}: {what}"
    elif name == "compile":
        yield from _compiler(build)
        choices, seconds = tuning(version.model, build)
        yield "info", f"autotuning: {choices} choices made in {seconds:.1f} s"
    elif name == "reuse":
        yield "info", "code of an earlier version with the same program key"
    elif name == "verify":
        yield from _gate(version)


def _compiler(build: Build) -> Iterator[Told]:
    luck = chance(build.id, "compiler")
    for place in range(12):
        kernel = luck.choice(
            ("convolution", "native_layer_norm", "gelu", "relu", "add", "softmax", "cat", "mul")
        )
        if build.arch.startswith("sm"):
            yield (
                "compiler",
                f"ptxas info    : Compiling entry function 'triton_poi_fused_{kernel}_{place}' for '{build.arch}'",
            )
            yield (
                "compiler",
                f"ptxas info    : Used {luck.randrange(24, 128)} registers, {luck.randrange(4, 48)}.0 KiB smem",
            )
        else:
            yield (
                "compiler",
                (
                    f"\x1b[01m\x1b[Kmodel.kernel.cpp:{luck.randrange(90, 4000)}:31:\x1b[m\x1b[K \x1b[01;35m\x1b[Kwarning: "
                    f"\x1b[m\x1b[Kunused variable '\x1b[01m\x1b[Ktmp{place}_{kernel}\x1b[m\x1b[K'"
                ),
            )


def _gate(version: Version) -> Iterator[Told]:
    most = max(version.model.batches)
    yield (
        "info",
        "golden outputs" if version.number == 1 else "does the source still compute the golden outputs?",
    )
    yield "info", "reference under perturbed constants"
    yield "info", f"reference of {min(14, len(version.model.tensors) // 4)} perturbations in 3.91 s"
    yield "info", f"run example batch={most} on 8 threads"
    yield "info", "run largest on 1 threads"


def _of_failure(attempt: Attempt) -> Iterator[Told]:
    yield from KINDS[attempt.kind].printed
    if attempt.kind in _ENDINGS:
        yield "warning", _ENDINGS[attempt.kind]
    elif attempt.error and attempt.outcome != "lost":  # a lost worker says nothing more
        yield from (("error", line) for line in str(attempt.error).splitlines())
