"""Parts of the program key that no source can change alone: baked weights, objects, large graphs, names of modules."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from pt2hub.domain.artifacts import Signature, Toolchain
from pt2hub.domain.digests import Digest, digest_bytes
from pt2hub.domain.targets import Target
from pt2hub_workers.inside.builds.export.export import ExportResult
from pt2hub_workers.inside.builds.key import code_values, own_code
from pt2hub_workers.inside.builds.key.code_values import CodeValues
from pt2hub_workers.inside.builds.key.operator_sources import CodeIdentity, identify_code
from pt2hub_workers.inside.builds.key.program_graphs import ProgramGraph
from pt2hub_workers.inside.builds.key.program_key import compute_program_key

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pt2hub.domain.artifacts import ProgramKey


def program(model: nn.Module) -> torch.export.ExportedProgram:
    return torch.export.export(model, (torch.ones(2, 4),))


def key(
    program: torch.export.ExportedProgram, identity: CodeIdentity, baked: Digest | None = None
) -> ProgramKey:
    return compute_program_key(
        ExportResult(program, Signature((), (), {}, {}, "cpu", "", ""), frozenset()),
        identity,
        separate=list(program.state_dict),
        options={},
        settings={},
        toolchain=Toolchain("2", "3", "g++", "glibc", "1"),
        target=Target(torch="2.13", device="cpu", arch="x86_64_v3"),
        baked=baked,
    )


def test_baked_weights_are_part_of_the_key() -> None:
    found = program(nn.Linear(4, 4))
    identity = CodeIdentity("graph")
    weights: list[Digest | None] = [None, digest_bytes(b"one"), digest_bytes(b"other")]

    assert len({key(found, identity, baked).digest for baked in weights}) == 3
    assert key(found, identity, weights[1]) == key(found, identity, weights[1])


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
def test_code_of_a_program_that_holds_an_object_of_a_torchbind_class_is_never_reused() -> None:
    found = program(nn.Linear(4, 4))
    packed: Any = torch.ops.quantized.linear_prepack(
        torch.quantize_per_tensor(torch.ones(4, 4), 0.1, 0, torch.qint8), None
    )
    assert isinstance(packed, torch.ScriptObject)
    found.constants["packed"] = packed

    identity = identify_code(found, lambda: "")

    assert identity.reasons == ["the constant packed is an object of ScriptObject"]
    one, other = key(found, identity), key(found, identity)
    assert one.never_reused == tuple(identity.reasons)
    assert one.digest != other.digest


class Long(nn.Module):
    """Many operations, each with numbers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(50):
            x = torch.add(x, 1.5, alpha=2).clamp(-3.0, 3.0)
        return x


def test_a_graph_with_more_numbers_than_one_value_may_hold_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_values, "MAX_PARTS", 20)

    graph = ProgramGraph(program(Long()))
    graph.describe()

    assert graph.unnamed == []


def test_where_handlers_apply_is_part_of_a_function() -> None:
    """The same instructions, of which other ones are guarded."""

    def guarded(x: int) -> int:
        try:
            return len(str(x))
        except ValueError:
            return 0

    code = guarded.__code__
    assert code.co_exceptiontable
    other: Callable[..., int] = type(guarded)(
        code.replace(co_exceptiontable=b""), guarded.__globals__, "guarded"
    )

    assert CodeValues().describe(guarded) != CodeValues().describe(other)


def test_a_module_named_like_one_of_pythons_belongs_to_its_author(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "this"  # prints when it is Python's, hence nobody has imported it
    assert name in sys.stdlib_module_names
    assert name not in sys.modules
    (tmp_path / f"{name}.py").write_text("LIMIT = 50\n")
    monkeypatch.syspath_prepend(tmp_path)
    own_code.is_own_module.cache_clear()
    try:
        importlib.import_module(name)
        assert not own_code.is_own_module(name)
    finally:
        sys.modules.pop(name, None)
        own_code.is_own_module.cache_clear()
