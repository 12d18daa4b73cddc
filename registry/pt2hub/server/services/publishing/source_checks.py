"""Checks of a model's source at submission: a source that no worker could build is refused before a build is queued.

Uploaded code is neither run nor imported here. The worker checks the rest: whether requirements are installed, whether
the entry point is in its module, whether the program's operators exist.
"""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement

from pt2hub.archive import read_safetensors_header
from pt2hub.archive.calls import check_call
from pt2hub.archive.code import check_code
from pt2hub.archive.exported_programs import check_program
from pt2hub.archive.safetensors_header import Form
from pt2hub.archive.weights_check import check_fit
from pt2hub.domain.publishing.spec import CodeSource, FactorySource, ProgramSource, check_factory
from pt2hub.domain.publishing.target_names import AUTO
from pt2hub.domain.targets import parse_target
from pt2hub.errors import Detail, InvalidInput, ProgramNewer, UnknownEntry
from pt2hub.server.services.suggestions import suggest_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pt2hub.archive import ByteSource
    from pt2hub.domain.publishing.spec import Source, Spec

_MAX_LISTED_MODULES = 10
_MAX_COMPARED_MODULES = 1000
_MAX_COMPARED_NAME_CHARS = 60
"""Suggestions are looked for among so many modules, for names of at most so many letters."""
_one_program = threading.Lock()
"""A large program takes up to 1 GB and ten seconds to read: one thread at a time."""
_RELEASE = re.compile(r"(\d+)\.(\d+)")


def check_source(source: Source, allowed: Sequence[str]) -> None:
    """Refuse a source that is wrong regardless of its uploads.

    Raises:
        UnknownFactory: The factory's module is not on the list.
        InvalidInput: A requirement is malformed.
    """
    if isinstance(source, FactorySource):
        check_factory(source, allowed)
    if isinstance(source, CodeSource):
        _check_requirements(source.requirements)


def check_uploaded(spec: Spec, files: Mapping[str, ByteSource]) -> None:
    """Refuse a malformed code archive or program, and one that does not fit the spec.

    Raises:
        BadCodeArchive: The archive is damaged or contains forbidden files.
        UnknownEntry: It lacks the entry's module, or one of a program's operators.
        BadProgram: The program is malformed, or still has its weights or pickles.
        ProgramNewer: It was exported by a newer torch than that of a target that the spec names.
        UsageError: The program's call does not fit the spec; see `archive.calls.check_call`.
        WeightsMismatch: The weights do not fit the program.
    """
    if isinstance(spec.source, CodeSource):
        _check_entry(spec.source.entry, check_code(files["source.code"]))
    if isinstance(spec.source, ProgramSource):
        if spec.source.code is not None:
            names = check_code(files["source.code"])
            for index, module in enumerate(spec.source.operators):
                _check_module(module, names, f"source.operators[{index}]", module)
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
    """Refuse a program that is newer than a named target's torch; with `auto`, workers that are too old say so."""
    names = [request.target for request in spec.requests()]
    targets = [(index, parse_target(name)) for index, name in enumerate(names) if name != AUTO]
    least = _release(torch_version)
    allowed = f"torch {'.'.join(map(str, least))} or newer"
    details = tuple(
        Detail(f"targets[{index}]", "the program needs a newer torch", target.name, allowed)
        for index, target in targets
        if target.exists and _release(target.torch) < least
    )
    if details:
        raise ProgramNewer(
            f"The program was exported by torch {torch_version}, which is newer than the torch of {details[0].given}",
            where=details[0].path,
            hint="Export it with the target's torch, or name targets with a torch at least as new.",
            details=details,
        )


def _release(version: str) -> tuple[int, ...]:
    """Return the major and minor number, which decide whether a torch release can read a program."""
    found = _RELEASE.match(version)
    return tuple(map(int, found.groups())) if found else (0, 0)


def _check_requirements(requirements: Sequence[str]) -> None:
    details = []
    for index, text in enumerate(requirements):
        try:
            Requirement(text)
        except InvalidRequirement as exc:
            problem = str(exc).partition("\n")[0]
            details.append(Detail(f"source.requirements[{index}]", problem, given=text))
    if details:
        raise InvalidInput(
            details[0].message if len(details) == 1 else f"{len(details)} invalid requirements",
            where=details[0].path,
            hint="Write a package and its versions as for pip, such as timm>=1.0 or torch>=2.11,<2.14.",
            details=tuple(details),
        )


def _check_entry(entry: str, names: Sequence[str]) -> None:
    _check_module(entry.partition(":")[0], names, "source.entry", entry)


def _check_module(module: str, names: Sequence[str], where: str, given: str) -> None:
    modules = [
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in names
        if name.endswith(".py")
    ]
    if module in modules:
        return
    suggestions = _suggest(module, modules)
    listed = ", ".join(modules[:_MAX_LISTED_MODULES])
    advice = f"Did you mean {' or '.join(suggestions)}? " if suggestions else f"It has {listed}. "
    raise UnknownEntry(
        f"Module {module} not found in the code archive",
        where=where,
        hint=f"{advice}Module names are relative to the packed folder.",
        details=(Detail(where, "module not found", given=given, allowed=", ".join(suggestions) or None),),
    )


def _suggest(module: str, modules: Sequence[str]) -> list[str]:
    """Return suggestions for a misspelled module: those with the same last name, or else similar ones."""
    last = module.rpartition(".")[2]
    same = [name for name in modules if name.rpartition(".")[2] == last]
    if same or len(module) > _MAX_COMPARED_NAME_CHARS:
        return same[:_MAX_LISTED_MODULES]
    return suggest_words(module, modules[:_MAX_COMPARED_MODULES])
