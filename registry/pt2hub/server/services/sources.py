"""Where a model comes from, judged at submission: what no worker could build is refused before anything waits.

Nothing of what was uploaded is run or imported here. What only the worker knows is left to it: whether a requirement
is installed, whether the entry point is in its module, whether the program's operators are there.
"""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement

from pt2hub.archive import read_safetensors_header
from pt2hub.archive.calls import check_call
from pt2hub.archive.code import check_code
from pt2hub.archive.fitting import check_fit
from pt2hub.archive.programs import check_program
from pt2hub.archive.tensors import Form
from pt2hub.domain.specs import CodeSource, FactorySource, ProgramSource, check_factory
from pt2hub.domain.targets import parse_target
from pt2hub.errors import Detail, InvalidInput, ProgramNewer, UnknownEntry
from pt2hub.server.services.near import near_words
from pt2hub.server.services.requests import AUTO

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pt2hub.archive import ByteSource
    from pt2hub.domain.specs import Source, Spec

_MOST = 10
"""Modules that are named where the entry's is not among them."""
_COMPARED, _LONGEST_COMPARED = 1000, 60
"""Modules that are looked at for one of a like name, and letters of the name that is sought."""
_one_program = threading.Lock()
"""A large program takes up to 1 GB and ten seconds to read: one thread of the process at a time."""
_RELEASE = re.compile(r"(\d+)\.(\d+)")


def check_source(source: Source, allowed: Sequence[str]) -> None:
    """Refuses what is wrong with a source whatever was uploaded.

    Args:
        source: Where the model comes from.
        allowed: Modules whose factories a spec may name.

    Raises:
        UnknownFactory: The factory's module is not on the list.
        InvalidInput: A requirement is none that pip could read.
    """
    if isinstance(source, FactorySource):
        check_factory(source, allowed)
    if isinstance(source, CodeSource):
        _check_requirements(source.requirements)


def check_uploaded(spec: Spec, files: Mapping[str, ByteSource]) -> None:
    """Refuses an archive of code, or a program, that no worker could take, or that the spec does not fit.

    Args:
        spec: What names the file.
        files: What the spec names, by path; weights were found to be safetensors.

    Raises:
        BadCodeArchive: The archive is damaged or holds what it must not.
        UnknownEntry: It lacks the entry's module.
        BadProgram: The program is none, or still has its weights or pickles.
        ProgramNewer: It is of a newer torch than that of a target that the spec names.
        UsageError: The program is called in another way than the spec says; see `archive.calls.check_call`.
        WeightsMismatch: The weights are not the program's.
    """
    if isinstance(spec.source, CodeSource):
        _check_entry(spec.source.entry, check_code(files["source.code"]))
    if isinstance(spec.source, ProgramSource):
        _check_program(spec, files)


def _check_program(spec: Spec, files: Mapping[str, ByteSource]) -> None:
    with _one_program:
        program = check_program(files["source.program"])
    _check_age(program.torch_version, spec)
    check_call(program.call, spec)
    tied = {name: program.weights[group[-1]] for group in program.ties for name in group}
    entries = read_safetensors_header(files["weights"])
    given = {name: Form(entry.dtype, entry.shape) for name, entry in entries.items()}
    check_fit({**program.weights, **tied}, given, ties=program.ties)


def _check_age(torch_version: str, spec: Spec) -> None:
    """What `auto` stands for is left out: a worker that is too old says so, and the others build."""
    names = [request.target for request in spec.requests()]
    targets = [(place, parse_target(name)) for place, name in enumerate(names) if name != AUTO]
    least = _release(torch_version)
    allowed = f"torch {'.'.join(map(str, least))} or newer"
    details = tuple(
        Detail(f"targets[{place}]", "the program is of a newer torch", target.name, allowed)
        for place, target in targets
        if target.exists and _release(target.torch) < least
    )
    if details:
        raise ProgramNewer(
            f"The program was exported by torch {torch_version}, which is newer than that of {details[0].given}",
            where=details[0].path,
            hint="Export it with the target's torch, or name targets of a torch as new.",
            details=details,
        )


def _release(version: str) -> tuple[int, ...]:
    """Major and minor number, by which torch's releases read each other's programs."""
    found = _RELEASE.match(version)
    return tuple(map(int, found.groups())) if found else (0, 0)


def _check_requirements(requirements: Sequence[str]) -> None:
    details = []
    for place, text in enumerate(requirements):
        try:
            Requirement(text)
        except InvalidRequirement as exc:
            problem = str(exc).partition("\n")[0]
            details.append(Detail(f"source.requirements[{place}]", problem, given=text))
    if details:
        raise InvalidInput(
            details[0].message if len(details) == 1 else f"{len(details)} requirements cannot be read",
            where=details[0].path,
            hint="Write a package and its versions as pip takes them, such as timm>=1.0 or torch>=2.11,<2.14.",
            details=tuple(details),
        )


def _check_entry(entry: str, names: Sequence[str]) -> None:
    module = entry.partition(":")[0]
    modules = [
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in names
        if name.endswith(".py")
    ]
    if module in modules:
        return
    near = _near(module, modules)
    found = f"Did you mean {' or '.join(near)}? " if near else f"It has {', '.join(modules[:_MOST])}. "
    raise UnknownEntry(
        f"The archive of code has no module {module}",
        where="source.entry",
        hint=f"{found}Names begin at the folder that was packed.",
        details=(
            Detail("source.entry", "there is no such module", given=entry, allowed=", ".join(near) or None),
        ),
    )


def _near(module: str, modules: Sequence[str]) -> list[str]:
    """Modules that may be meant: of the same last name, or else of a like one."""
    last = module.rpartition(".")[2]
    same = [name for name in modules if name.rpartition(".")[2] == last]
    return same[:_MOST] or (
        near_words(module, modules[:_COMPARED]) if len(module) <= _LONGEST_COMPARED else []
    )
