"""Loads exported programs, joined with their weights.

Loading evaluates text from the file (docs/facts/trust.md#exported-programs), so it runs in the sandbox only.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import torch
from torch._export.serde.schema import SCHEMA_VERSION
from torch.export.pt2_archive._package import load_pt2

from pt2hub.archive.calls import check_call
from pt2hub.archive.exported_programs import check_program, join_program
from pt2hub.client.publishing.live_models.kernel_calls import restore_kernel_calls
from pt2hub.domain.publishing.spec import ProgramSource
from pt2hub.errors import BadProgram, ProgramNewer, WeightsMismatch
from pt2hub_workers.inside.sources.program_operators import register_operators

if TYPE_CHECKING:
    from pathlib import Path

    from torch.export import ExportedProgram

    from pt2hub.archive.exported_programs import ProgramSummary
    from pt2hub_workers.inside.sources.source_files import SourceFiles

_WHERE = "source.program"
_JOINED = "program.pt2"
_RELEASE = re.compile(r"(\d+)\.(\d+)")


def build(given: SourceFiles) -> torch.nn.Module:
    """Load the program as a module, with its weights on the target's device.

    Raises:
        BadProgram: The file is not a program, is damaged, or torch cannot read it.
        ProgramNewer: It was exported by a newer torch than this one.
        WeightsMismatch: The weights are missing or do not belong to the program.
        UnknownInput: The spec has an argument that the program lacks.
        InputRefused: The spec calls the program in a different way from its export.
        DimensionSpecialised: A dimension of the spec has a wider range than the program's own.
    """
    if given.source is None:
        raise BadProgram("the version has no program", where=_WHERE)
    if given.weights is None:
        raise WeightsMismatch(
            "a program requires its weights",
            where="weights",
            hint="`pt2hub publish --program FILE` uploads both.",
        )
    summary = check_program(given.source)
    _check_version(summary)
    if given.spec is not None:
        check_call(summary.call, given.spec)
    modules = (
        given.spec.source.operators if given.spec and isinstance(given.spec.source, ProgramSource) else []
    )
    register_operators(summary.operators, given, modules)
    program = _load(given.source, given.weights, given)
    restore_kernel_calls(program)
    return _module(program, summary)


def _check_version(summary: ProgramSummary) -> None:
    theirs, ours = (_RELEASE.search(version) for version in (summary.torch_version, torch.__version__))
    newer = theirs and ours and tuple(map(int, theirs.groups())) > tuple(map(int, ours.groups()))
    known = summary.schema[0] == SCHEMA_VERSION[0]
    if known and not newer:
        return
    message = f"the program was exported with torch {summary.torch_version} (schema {summary.schema[0]}); the target "
    message += f"builds with torch {torch.__version__} (schema {SCHEMA_VERSION[0]})"
    if newer or summary.schema[0] > SCHEMA_VERSION[0]:
        raise ProgramNewer(
            message,
            where=_WHERE,
            hint="Export it with the target's torch, or choose a target with a worker that has the newer torch.",
        )
    raise BadProgram(message, where=_WHERE, hint="Export it again with the target's torch.")


def _load(source: Path, weights: Path, given: SourceFiles) -> ExportedProgram:
    given.scratch.mkdir(parents=True, exist_ok=True)
    whole = given.scratch / _JOINED
    join_program(source, weights, whole, device=given.device)
    try:
        # torch.export.load replaces a RuntimeError by one that refers to the warnings above.
        programs: dict[str, ExportedProgram] = load_pt2(str(whole)).exported_programs
        return programs["model"]
    except Exception as error:  # torch may raise anything for a graph that it cannot read
        raise BadProgram(
            f"torch {torch.__version__} cannot read the program: {type(error).__name__}: {_first_line(error)}",
            where=_WHERE,
            hint="Load it with torch.export.load in the same release of torch, and export it again if that fails.",
        ) from error
    finally:
        whole.unlink(missing_ok=True)


def _module(program: ExportedProgram, summary: ProgramSummary) -> torch.nn.Module:
    module = program.module(check_guards=False)  # the spec and the new export check the same
    for name in ("train", "eval"):  # torch.export replaces them by ones that raise
        vars(module).pop(name, None)
    for hooks in (module._forward_pre_hooks, module._forward_hooks):  # noqa: SLF001  # checks of the call, done before
        hooks.clear()
    for graph_module in module.modules():
        if isinstance(graph_module, torch.fx.GraphModule):
            _remove_export_checks(graph_module)
    for group in summary.ties:
        _tie(module, group)
    return module


def _remove_export_checks(module: torch.fx.GraphModule) -> None:
    """Remove nodes that prevent tracing a graph again, or running it in another dtype; none computes anything.

    Assertions fix intermediate tensors to the dtype and device of the export, so that no program with a `.to` could be
    built in another dtype or run in float64. Each literal is followed by detach_, for which torch 2.13 raises when it
    traces the graph of a loaded program.
    """
    aten = torch.ops.aten
    for node in module.graph.find_nodes(op="call_function", target=aten._assert_tensor_metadata.default):  # noqa: SLF001  # its only name
        module.graph.erase_node(node)
    for node in module.graph.find_nodes(op="call_function", target=aten.detach_.default):
        node.replace_all_uses_with(node.args[0])
        module.graph.erase_node(node)
    module.recompile()


def _tie(module: torch.nn.Module, names: tuple[str, ...]) -> None:
    """Replace tensors that share memory by one, so that they stay tied when the module is moved or converted."""
    last = _owner(module, names[-1])
    for name in names[:-1]:
        owner, leaf = _owner(module, name)
        kind = "_parameters" if leaf in owner._parameters else "_buffers"  # noqa: SLF001  # set as torch itself does
        own = getattr(last[0], kind).get(last[1])
        if own is not None:
            getattr(owner, kind)[leaf] = own


def _owner(module: torch.nn.Module, name: str) -> tuple[torch.nn.Module, str]:
    path, _, leaf = name.rpartition(".")
    return module.get_submodule(path), leaf


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0][:500]
