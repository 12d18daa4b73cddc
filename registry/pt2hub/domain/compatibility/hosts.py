"""Descriptions of machines, as far as compatibility depends on them.

A description comes from anywhere: from a client's own machine, from a file, from a request. `parse_host` is the only way
from a document to a `Host`, so the server and the client accept the same documents.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import Any

from pt2hub.domain.targets import cpu_level
from pt2hub.errors import Detail, InvalidInput

MAX_HOST_BYTES = 1 << 18
"""Largest description as JSON; one with every function of libtorch has 20 KiB."""
_MAX_FLAGS = 1_000
_MAX_SYMBOLS = 5_000
_MAX_LIBRARIES = 500
_MAX_SHARED_MEMORY_BYTES = 1 << 30
_MAX_SHOWN_CHARS = 80
_HINT = "`pt2hub host --json` prints the description of a machine."
_RELEASE = r"[0-9]{1,5}(\.[0-9]{1,5}){0,3}"


@dataclass(frozen=True, slots=True)
class Host:
    """The properties of a machine that matter for compatibility. None means unknown; unknown axes are not checked.

    Attributes:
        os: `linux`.
        machine: Output of `uname -m`.
        torch: Release line (`2.13`), or None if torch is not installed.
        cpu_flags: Instruction-set flags of the CPU.
        cuda: CUDA release of torch without the dot, or None on a CPU build.
        sm: Compute capability of the GPU (`sm90`), or None without one.
        glibc: Version of the C library (`2.36`), or None.
        shared_memory_bytes: Most shared memory that a block may request on the GPU, or None.
        glibcxx: Newest GLIBCXX symbol version of the C++ library (`3.4.30`), or None.
        driver: Release of NVIDIA's kernel driver (`580.65.06`), or None.
        driver_cuda: Newest CUDA release that the driver supports, as `nvidia-smi` prints it (`13.0`), or None.
        aoti_symbols: `aoti_torch_*` functions that libtorch exports, or None. Without them only artifacts for the same
            release line of torch are compatible.
        operator_libraries: Versions of the installed Python packages that may register operators, or None.
    """

    os: str
    machine: str
    torch: str | None
    cpu_flags: frozenset[str]
    cuda: str | None = None
    sm: str | None = None
    glibc: str | None = None
    shared_memory_bytes: int | None = None
    glibcxx: str | None = None
    driver: str | None = None
    driver_cuda: str | None = None
    aoti_symbols: frozenset[str] | None = None
    operator_libraries: dict[str, str] | None = field(default=None, hash=False)

    def as_document(self) -> dict[str, Any]:
        """Return the description as JSON values, which `parse_host` reads; unknown properties are left out."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {
            name: sorted(value) if isinstance(value, frozenset) else value
            for name, value in values.items()
            if value is not None
        }

    def native_target(self, device: str = "cpu") -> str | None:
        """Return the name of the target that fits the machine best; None if there is none.

        Args:
            device: `cpu` or `cuda`; the target is the CPU's where torch or the machine has no CUDA.
        """
        level = cpu_level(self.cpu_flags)
        if self.torch is None:
            return None
        if device == "cuda" and self.cuda and self.sm:
            return f"torch{self.torch}-cu{self.cuda}-{self.sm}"
        return f"torch{self.torch}-cpu-{level}" if level else None


_TEXTS = {
    "os": r"[a-z0-9_]{1,20}",
    "machine": r"[A-Za-z0-9_]{1,20}",
    "torch": r"[0-9]{1,3}\.[0-9]{1,3}",
    "cuda": r"[0-9]{2,4}",
    "sm": r"sm[0-9]{2,3}",
    "glibc": _RELEASE,
    "glibcxx": _RELEASE,
    "driver": _RELEASE,
    "driver_cuda": r"[0-9]{1,3}\.[0-9]{1,2}",
}
_LISTS = {
    "cpu_flags": (r"[a-z0-9_.:]{1,40}", _MAX_FLAGS),
    "aoti_symbols": (r"aoti_torch_[A-Za-z0-9_]{1,200}", _MAX_SYMBOLS),
}
_LIBRARY = (r"[A-Za-z_][A-Za-z0-9_]{0,99}", r"[A-Za-z0-9.+!_-]{0,60}")
_REQUIRED = ("os", "machine", "cpu_flags")


def parse_host(document: object, *, where: str = "host") -> Host:
    """Parse the description of a machine. It is untrusted: every field is bounded, and unknown fields are ignored.

    Args:
        where: Path of the document, for the error.

    Raises:
        InvalidInput: It is not an object, or fields are missing, malformed or too large; the details name them.
    """
    if not isinstance(document, dict):
        raise InvalidInput(
            f"The description of a machine must be an object, got {type(document).__name__}",
            where=where,
            hint=_HINT,
        )
    given = {name: _as_whole(value) for name, value in document.items() if value is not None}
    wrong = [_missing(name) for name in _REQUIRED if name not in given]
    wrong += [fault for name, value in given.items() if (fault := _fault(name, value))]
    if wrong:
        raise InvalidInput(
            "The description of a machine has invalid fields",
            where=where,
            hint=_HINT,
            details=tuple(wrong),
        )
    known = {item.name for item in fields(Host)}
    values: dict[str, Any] = {
        name: frozenset(value) if name in _LISTS else value for name, value in given.items() if name in known
    }
    return Host(**{"torch": None, **values})


def host_schema() -> dict[str, Any]:
    """Return the JSON schema of what `parse_host` takes."""
    texts = {name: _text_schema(pattern) for name, pattern in _TEXTS.items()}
    lists = {
        name: {"type": "array", "maxItems": most, "items": _text_schema(pattern)}
        for name, (pattern, most) in _LISTS.items()
    }
    package, version = _LIBRARY
    libraries = {
        "type": "object",
        "maxProperties": _MAX_LIBRARIES,
        "propertyNames": _text_schema(package),
        "additionalProperties": _text_schema(version),
    }
    size = {"type": "integer", "minimum": 0, "maximum": _MAX_SHARED_MEMORY_BYTES}
    known = {**texts, **lists, "shared_memory_bytes": size, "operator_libraries": libraries}
    optional = {name: {"anyOf": [schema, {"type": "null"}]} for name, schema in known.items()}
    return {
        "type": "object",
        "properties": {**optional, **{name: known[name] for name in _REQUIRED}},
        "required": list(_REQUIRED),
    }


def _text_schema(pattern: str) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^(?:{pattern})$"}


def _as_whole(value: Any) -> Any:
    """Return 3 for 3.0, which JSON does not distinguish."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _missing(name: str) -> Detail:
    return Detail(name, "the field is required")


def _fault(name: str, value: object) -> Detail | None:
    """Return what is wrong with a field; None for valid and for unknown fields."""
    allowed = _allowed(name, value)
    return None if allowed is None else Detail(name, "invalid value", repr(value)[:_MAX_SHOWN_CHARS], allowed)


def _allowed(name: str, value: object) -> str | None:
    """Return what a field allows if it does not allow this value."""
    if name in _TEXTS:
        return None if _matches(_TEXTS[name], value) else f"text of the form {_TEXTS[name]}"
    if name in _LISTS:
        pattern, most = _LISTS[name]
        fits = isinstance(value, list) and len(value) <= most and all(_matches(pattern, one) for one in value)
        return None if fits else f"a list of at most {most} texts of the form {pattern}"
    if name == "shared_memory_bytes":
        fits = type(value) is int and 0 <= value <= _MAX_SHARED_MEMORY_BYTES
        return None if fits else f"an integer from 0 to {_MAX_SHARED_MEMORY_BYTES}"
    if name == "operator_libraries":
        return None if _are_libraries(value) else f"at most {_MAX_LIBRARIES} versions by package name"
    return None


def _are_libraries(value: object) -> bool:
    package, version = _LIBRARY
    return (
        isinstance(value, dict)
        and len(value) <= _MAX_LIBRARIES
        and all(_matches(package, key) and _matches(version, item) for key, item in value.items())
    )


def _matches(pattern: str, value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(pattern, value) is not None
