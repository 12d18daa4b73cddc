"""The split form of a baked build: made to be timed beside it, and never published."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub.client.loader import LoadedModel
from pt2hub.domain.artifacts import ArtifactConfig, ProgramKey
from pt2hub.domain.codec import encode
from pt2hub_workers.inside import packing
from pt2hub_workers.inside.packing import Circumstances

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pt2hub_workers.inside.channel import Channel
    from pt2hub_workers.inside.packing import Packed

SUBJECT = "split"


@dataclass(frozen=True, slots=True)
class Wanted:
    """The split form, before there is one.

    Attributes:
        key: Its program key, the same as a split build of this version has.
        around: The model's weights, target and worker.
        config: The baked artifact's.
    """

    key: ProgramKey
    around: Circumstances
    config: ArtifactConfig


@dataclass(frozen=True, slots=True)
class SplitForm:
    """The split form, loaded.

    Attributes:
        model: To be called.
        seconds: What its compilation took; None where code was reused.
    """

    model: LoadedModel
    seconds: float | None

    def compile_time(self) -> list[dict[str, Any]]:
        """The time apart from that of the artifact itself, as a measurement."""
        if self.seconds is None:
            return []
        value = {"metric": "compile_time", "value": self.seconds, "unit": "s", "subject": SUBJECT}
        return [{**value, "batch": None, "samples": None}]


def split_form(
    wanted: Wanted, channel: Channel, directory: Path, compiler: Callable[[Path], object] | None
) -> SplitForm | None:
    """The version in its split form; None, and a line in the log, where there is none to be had.

    Args:
        wanted: What it is to be.
        channel: To the parent, which knows whether there is code with its key.
        directory: For its files.
        compiler: Compiles it into a package at a path; None where it may not be compiled.
    """
    found = channel.ask("split_code", key=encode(wanted.key))
    directory.mkdir(parents=True)
    try:
        if found is not None:
            channel.detail("measure", f"the split form, with the code of {found['artifact']}")
            packed = packing.pack_reused(Path(found["code"]), found["config"], wanted.around, directory)
            return SplitForm(_loaded(packed, wanted), None)
        if compiler is not None:
            channel.detail("measure", "compiling the split form, to time it beside the baked one")
            packed, seconds = _compiled(wanted, directory, compiler)
            channel.log(f"compiled the split form in {seconds:.1f} s, to time it beside the baked one")
            return SplitForm(_loaded(packed, wanted), seconds)
    except Exception as error:  # noqa: BLE001  # a proven artifact is published whether or not this can be timed
        why = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        channel.log(f"the split form is not measured: {why}", "warning")
        return None
    channel.log("the split form is not measured: it has no code yet, and this build compiles nothing")
    return None


def _compiled(wanted: Wanted, directory: Path, compiler: Callable[[Path], object]) -> tuple[Packed, float]:
    package = directory / "package.pt2"
    started = time.monotonic()
    with own_cache(directory):
        compiler(package)
    seconds = time.monotonic() - started
    return packing.pack_compiled(package, wanted.around, directory), seconds


def _loaded(packed: Packed, wanted: Wanted) -> LoadedModel:
    parts = {name: getattr(packed, name) for name in ("constants", "native", "single_file")}
    return packing.load(packed, replace(wanted.config, key=wanted.key, **parts))


@contextmanager
def own_cache(directory: Path) -> Iterator[None]:
    """Two compilations of one model in one cache directory mix their outputs (facts/aoti.md, section 5)."""
    name = "TORCHINDUCTOR_CACHE_DIR"
    before = os.environ.get(name)
    os.environ[name] = str(directory / "cache")
    try:
        yield
    finally:
        os.environ.pop(name) if before is None else os.environ.update({name: before})
