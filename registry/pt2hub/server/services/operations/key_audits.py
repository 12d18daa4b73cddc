"""Key audits: published artifacts that reuse code which may differ from their own program's."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub.archive.code import unpack_code
from pt2hub.archive.exported_programs import check_program
from pt2hub.domain.artifacts import KEY_SCHEMA
from pt2hub.domain.digests import Digest
from pt2hub.domain.key_audits import Certainty, KeyFinding
from pt2hub.errors import Pt2hubError
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.operations.key_audits import KeyAuditStore

if TYPE_CHECKING:
    from pt2hub.server.blobs.ports import Storage
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.stores.operations.key_audits import ReusedCode

_REGISTERS = re.compile(
    r"triton_op|custom_op|torch\.library|torch\._library|triton\.jit|load_library|cpp_extension|torch\._inductor"
    r"|register_decomposition|py_impl|import triton|from triton"
)
"""Python source that registers an operator, writes a kernel or changes the compiler."""
_NATIVE = frozenset({".so", ".cpp", ".cc", ".cu", ".cxx"})


class KeyAuditService:
    """Finds artifacts that reuse code across operators that their program key did not name."""

    def __init__(self, sessions: Sessions, storage: Storage) -> None:
        self._sessions = sessions
        self._storage = storage

    def audit(self) -> tuple[KeyFinding, ...]:
        """Return every artifact that reuses code by an older key, or with operators that are not torch's own."""
        with self._sessions.begin() as session:
            found = KeyAuditStore(session).list_reused()
        known: dict[str, tuple[Certainty, tuple[str, ...], str]] = {}
        return tuple(self._finding(item, known) for item in found)

    def _finding(
        self, item: ReusedCode, known: dict[str, tuple[Certainty, tuple[str, ...], str]]
    ) -> KeyFinding:
        operators = tuple(item.operators)
        if item.key_schema >= KEY_SCHEMA:
            certainty, why = Certainty.NAMED, "its program key names the code of every operator"
        elif operators:
            certainty, why = (
                Certainty.MAY_DIFFER,
                "its program calls operators that an older key named differently",
            )
        else:
            origin = str(item.source.get("code") or item.source.get("program") or item.source.get("factory"))
            if origin not in known:
                known[origin] = self._inspect(item.source)
            certainty, operators, why = known[origin]
        return KeyFinding(
            artifact=Digest(item.digest),
            version=f"{item.model}@{item.number}",
            target=item.target,
            key_schema=item.key_schema,
            reused=Digest(item.reused),
            operators=operators,
            certainty=certainty,
            why=why,
        )

    def _inspect(self, source: dict[str, Any]) -> tuple[Certainty, tuple[str, ...], str]:
        """Return whether a stored source may call operators that are not torch's own, with those operators and the reason."""
        kind = "code" if source.get("code") else "program"
        if not source.get(kind):
            return (
                Certainty.UNKNOWN,
                (),
                f"the factory {source.get('factory')} comes from a package on its worker",
            )
        try:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "source"
                self._storage.fetch(StorageKey.blob(Digest(source[kind])), path)
                return (
                    _inspect_program(path)
                    if kind == "program"
                    else _inspect_code(path, Path(folder) / "files")
                )
        except Pt2hubError as error:
            return Certainty.UNKNOWN, (), f"its {kind} can no longer be read ({error.code})"


def _inspect_program(path: Path) -> tuple[Certainty, tuple[str, ...], str]:
    operators = check_program(path).operators
    if operators:
        return Certainty.MAY_DIFFER, operators, "its program calls operators that are not torch's own"
    return Certainty.UNLIKELY, (), "its program calls only torch's own operators"


def _inspect_code(path: Path, folder: Path) -> tuple[Certainty, tuple[str, ...], str]:
    """Search the source's text for operator registrations; imported packages are not searched."""
    unpack_code(path, folder)
    files = sorted(item for item in folder.rglob("*") if item.is_file())
    for file in files:
        name = file.relative_to(folder)
        if file.suffix in _NATIVE:
            return Certainty.MAY_DIFFER, (), f"its code has {name}, which may register operators"
        if file.suffix == ".py" and (found := _REGISTERS.search(file.read_text(errors="replace"))):
            return Certainty.MAY_DIFFER, (), f"its code has {found[0]} in {name}"
    return Certainty.UNLIKELY, (), "its code registers no operator and writes no kernel"
