"""Program keys of small sources, each in a process of its own: `python -m support.program_keys` reads and writes JSON.

A process that imports torch once forks for each source.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.workbench import child_environ

if TYPE_CHECKING:
    from collections.abc import Mapping


_WARM_UP = """
import torch

def build():
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.SiLU()).eval()

DIMS = lambda: ({0: torch.export.Dim("batch", min=2, max=64)},)
"""
"""A source that changes no setting. Its key fills torch's caches and loads modules: a third of the time of a first key."""


@dataclass(frozen=True, slots=True)
class Named:
    """What the key says of a source.

    Attributes:
        digest: The key's.
        fields: The key's.
        lines: What the build's log says of operators.
        unchanged: Whether the program was the same after the key was made.
    """

    digest: str
    fields: dict[str, Any]
    lines: list[str]
    unchanged: bool

    @property
    def never(self) -> list[str]:
        """Why its code is never reused."""
        found: list[str] = self.fields.get("reuse", {}).get("never", [])
        return found


def keys_of(
    sources: Mapping[str, str], environ: Mapping[str, str] | None = None, *, warm: bool = False
) -> dict[str, Named]:
    """The keys of sources, by name.

    Args:
        sources: Python with a function `build`, and perhaps `EXAMPLE`, `DIMS` and `STRICT`.
        environ: Further variables of the process.
        warm: Whether the process makes the key of another program before it forks. A build's child never does.
    """
    import torch

    # CUDA works in no fork of a process that has looked for devices: there each source has a process of its own.
    alone = torch.cuda.is_available()
    groups = [{name: source} for name, source in sources.items()] if alone else [dict(sources)]
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        own = _environ() | dict(environ or {})
        answers = pool.map(lambda group: _answer(group, own, warm=warm and not alone), groups)
        return {name: Named(**value) for answer in answers for name, value in answer.items()}


def _answer(sources: Mapping[str, str], environ: Mapping[str, str], *, warm: bool) -> dict[str, Any]:
    """What a process of its own says of sources."""
    done = subprocess.run(
        [sys.executable, "-m", "support.program_keys", *(("warm",) if warm else ())],
        input=json.dumps(sources),
        env=dict(environ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert all(found.values()), f"{[name for name in found if not found[name]]}: {done.stderr[-8000:]}"
    return found


def _environ() -> dict[str, str]:
    """As that of all children, with what this process was given to import from."""
    environ = child_environ()
    return environ | {
        "PYTHONPATH": os.pathsep.join([environ["PYTHONPATH"], os.environ.get("PYTHONPATH", "")])
    }


def _name(source: str) -> dict[str, Any]:
    """The key of a source, in this process."""
    import torch

    from pt2hub.domain.artifacts import Signature, Toolchain
    from pt2hub.domain.targets import Target
    from pt2hub_workers.inside.builds.export.export import ExportResult
    from pt2hub_workers.inside.builds.key import settings, torch_patches
    from pt2hub_workers.inside.builds.key.loaded_code import digest_loaded_code
    from pt2hub_workers.inside.builds.key.operator_sources import identify_code
    from pt2hub_workers.inside.builds.key.program_graphs import ProgramGraph
    from pt2hub_workers.inside.builds.key.program_key import compute_program_key

    folder = Path(tempfile.mkdtemp())
    (folder / "the_model.py").write_text(source)
    sys.path.insert(0, str(folder))
    before = settings.compiler_configuration() | torch_patches.inductor_constants()
    import the_model  # type: ignore[import-not-found]  # written above

    model = the_model.build()
    example = getattr(the_model, "EXAMPLE", lambda: (torch.ones(3, 4),))()
    shapes = getattr(the_model, "DIMS", lambda: None)()
    strict = getattr(the_model, "STRICT", False)
    program = torch.export.export(model, example, dynamic_shapes=shapes, strict=strict)
    of_source = {"code": hashlib.sha256(source.encode()).hexdigest()}
    first = str(program), ProgramGraph(program).describe()
    identity = identify_code(program, lambda: digest_loaded_code(of_source, folder))
    now = settings.compiler_configuration() | torch_patches.inductor_constants()
    changed = settings.diff_settings(before, {name: now[name] for name in now.keys() & before.keys()})
    key = compute_program_key(
        ExportResult(program, Signature((), (), {}, "cpu", "", ""), frozenset()),
        identity,
        separate=list(program.state_dict),
        options={},
        settings={**settings.numeric_settings(), "changed": changed},
        toolchain=Toolchain("2", "3", "g++", "glibc", "1"),
        target=Target(torch="2.13", device="cpu", arch="x86_64_v3"),
    )
    same = (str(program), ProgramGraph(program).describe()) == first
    return {"digest": key.digest, "fields": key.fields, "lines": identity.lines, "unchanged": same}


def _in_child(source: str) -> dict[str, Any]:
    """As `_name`, in a fork of this process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            with os.fdopen(writing, "w") as out:
                json.dump(_name(source), out)
        except Exception:  # noqa: BLE001  # whatever a source does, the others are named
            with os.fdopen(os.dup(2), "w") as out:
                traceback.print_exc(file=out)
            os._exit(1)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    found: dict[str, Any] = json.loads(text or "{}")
    return found


def _warm_up() -> None:
    """Make a key in this process, of which torch's caches and modules remain, and nothing of the source."""
    path = sys.path.copy()
    _name(_WARM_UP)
    sys.path[:] = path
    del sys.modules["the_model"]


def _main(sources: Mapping[str, str], *, warm: bool) -> None:
    import torch._inductor.lowering
    import torch._inductor.package
    import torch.export  # once for all children

    import pt2hub_workers.inside.builds.build  # noqa: F401  # likewise

    if warm:
        _warm_up()
    gc.collect()
    gc.freeze()  # a collection over torch's objects costs a child as much as the key itself
    gc.disable()
    key_of = _name if len(sources) == 1 and torch.cuda.is_available() else _in_child
    print(json.dumps({name: key_of(source) for name, source in sources.items()}))


if __name__ == "__main__":
    _main(json.load(sys.stdin), warm="warm" in sys.argv)
