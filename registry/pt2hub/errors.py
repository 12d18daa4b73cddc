"""Every error of pt2hub, each with a stable code.

This module imports nothing of pt2hub and knows no transport: the HTTP status of a code is the API's table.

    Pt2hubError
    +-- UsageError              the caller, the spec or the model is at fault; never retried
    |   +-- InvalidInput        a document or an argument has wrong fields (details name each)
    |   |   +-- UnknownTarget, NoLiveWorker
    |   +-- UnknownFactory, FactoryFailed, FactoryArguments, UnknownInput, InputRefused, IndexOutOfRange
    |   +-- ExampleOutOfRange, DimensionSpecialised, NondeterministicModel, UnsupportedOutput, NanOutput
    |   +-- WeightsMismatch, ExportFailed, SourceDrifted, NoPower, ToleranceMissed, BuildTimedOut
    |   +-- NotFound, Ambiguous, Unauthorized, TooLarge, UploadTruncated, RangeNotSatisfiable
    |   +-- Conflict
    |   |   +-- AliasMoved, NotReady, BuildActive, BuildOver
    |   +-- ClientTooOld, ServerTooOld, BadCall, Incompatible, ForkedProcess
    |   +-- HomeInUse, HomeUnusable, PortTaken, NamespacesRefused, SchemaNewer, SchemaOlder, BadConfiguration
    +-- TransientError          storage, network or a worker failed; worth another try
    |   +-- StorageUnavailable, StorageFull, DatabaseUnavailable, ServerUnreachable, WorkerLost, Busy
    +-- FatalError              our bug or a broken worker; never retried, alarmed
        +-- CompileFailed, LayoutUnproven, ArtifactCrashed, ArtifactHung, ArtifactWrong, DigestMismatch
        +-- CorruptArchive, StaleAttempt, BadResponse, InternalError
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_TURNING = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
UNSEEN = dict.fromkeys((*range(9), *range(11, 32), *range(127, 160), *_TURNING))
"""Control characters and those that turn text around, for `str.translate`, which removes them: in texts from
elsewhere they repaint a terminal or hide what stands there. Tabs and line ends stay."""


@dataclass(frozen=True, slots=True)
class Detail:
    """One wrong place in a document.

    Attributes:
        path: Where, in the words of the document (`inputs[0].shape[1]`).
        message: What is wrong there.
        given: What was given, shortened, or None.
        allowed: What would be right, or None.
    """

    path: str
    message: str
    given: str | None = None
    allowed: str | None = None

    def values(self) -> str:
        """What was given and what is allowed, to stand behind a message; empty where neither is known."""
        known = {"given": self.given, "allowed": self.allowed}
        said = "; ".join(f"{word}: {value}" for word, value in known.items() if value is not None)
        return f" ({said})" if said else ""


class Pt2hubError(Exception):
    """Something went wrong in pt2hub."""

    code: ClassVar[str] = "error"
    kind: ClassVar[str] = "fatal"

    def __init__(
        self,
        message: str | None = None,
        *,
        where: str | None = None,
        hint: str | None = None,
        details: tuple[Detail, ...] = (),
        context: Mapping[str, Any] | None = None,
    ) -> None:
        """Creates the error.

        Args:
            message: What happened, one sentence. The class's docstring where omitted.
            where: The field, step, file or address it happened at.
            hint: What to do next.
            details: Each wrong place, for documents with several.
            context: Further JSON values for programs (the winner of a race, a signal's name).
        """
        self.message = message or (type(self).__doc__ or "").strip().splitlines()[0]
        self.where = where
        self.hint = hint
        self.details = details
        self.context = dict(context or {})
        super().__init__(self.message)

    def __str__(self) -> str:
        lines = [f"{self.where}: {self.message}" if self.where else self.message]
        if len(self.details) == 1 and (self.where or "").endswith(self.details[0].path):
            (only,) = self.details  # its place stands there already, and mostly its message
            same = only.message.rstrip(".") == self.message.rstrip(".")
            more = only.values() if same else f": {only.message}{only.values()}"
            lines[0] = f"{lines[0].rstrip('.')}{more}" if more else lines[0]
        else:
            lines += [f"  {item.path}: {item.message}{item.values()}" for item in self.details]
        if self.hint:
            lines.append(f"  {self.hint}")
        return "\n".join(lines).translate(UNSEEN)  # parts of it may come from another machine

    def as_dict(self) -> dict[str, Any]:
        """The error as JSON values; `wire.problems.from_dict` turns them back into the same class."""
        return {
            "code": self.code,
            "kind": self.kind,
            "message": self.message,
            "where": self.where,
            "hint": self.hint,
            "details": [asdict(item) for item in self.details],
            "context": self.context,
        }


class UsageError(Pt2hubError):
    """The request, the spec or the model is at fault."""

    code = "usage"
    kind = "usage"


class TransientError(Pt2hubError):
    """A part that pt2hub depends on did not answer; another try may succeed."""

    code = "transient"
    kind = "transient"


class FatalError(Pt2hubError):
    """A defect of pt2hub, the compiler or this worker."""

    code = "fatal"
    kind = "fatal"


class InvalidInput(UsageError):
    """Some fields are wrong."""

    code = "invalid_input"


class UnknownTarget(InvalidInput):
    """The target's name does not follow torch<x.y>-<device>-<arch>."""

    code = "unknown_target"


class NoLiveWorker(InvalidInput):
    """No live worker offers a target."""

    code = "no_live_worker"


class UnknownFactory(UsageError):
    """The factory does not exist or is not on the allow-list."""

    code = "unknown_factory"


class FactoryFailed(UsageError):
    """The factory raised an exception."""

    code = "factory_failed"


class FactoryArguments(UsageError):
    """The factory does not take these arguments."""

    code = "factory_arguments"


class UnknownInput(UsageError):
    """An input's name is not an argument of the model's forward."""

    code = "unknown_input"


class InputRefused(UsageError):
    """The model refuses the example inputs."""

    code = "input_refused"


class IndexOutOfRange(UsageError):
    """An integer input holds ids beyond a table of the model."""

    code = "index_out_of_range"


class ExampleOutOfRange(UsageError):
    """A dimension's example lies outside its declared range."""

    code = "example_out_of_range"


class DimensionSpecialised(UsageError):
    """The export fixed a dimension that the spec declares dynamic."""

    code = "dimension_specialised"


class NondeterministicModel(UsageError):
    """Two eager runs on the same inputs differ."""

    code = "nondeterministic_model"


class UnsupportedOutput(UsageError):
    """The model returns something other than tensors."""

    code = "unsupported_output"


class NanOutput(UsageError):
    """The model's own output is not finite."""

    code = "nan_output"


class WeightsMismatch(UsageError):
    """The weights file does not fit the model."""

    code = "weights_mismatch"


class ExportFailed(UsageError):
    """The model could not be exported."""

    code = "export_failed"


class SourceDrifted(UsageError):
    """The source no longer reproduces the golden outputs stored with the version."""

    code = "source_drifted"


class NoPower(UsageError):
    """The gate cannot tell a right artifact from a wrong one on this model."""

    code = "no_power"


class ToleranceMissed(UsageError):
    """The artifact's error is just above the tolerance."""

    code = "tolerance_missed"


class BuildTimedOut(UsageError):
    """The build ran longer than its limit."""

    code = "build_timed_out"


class NotFound(UsageError):
    """There is no such thing."""

    code = "not_found"


class Conflict(UsageError):
    """The thing was changed by someone else meanwhile."""

    code = "conflict"


class AliasMoved(Conflict):
    """The alias was moved by someone else meanwhile."""

    code = "alias_moved"


class NotReady(Conflict):
    """The version has nothing yet that could be pulled."""

    code = "not_ready"


class BuildActive(Conflict):
    """The build is queued or running."""

    code = "build_active"


class BuildOver(Conflict):
    """The build is over."""

    code = "build_over"


class Ambiguous(UsageError):
    """The reference names several things."""

    code = "ambiguous"


class Unauthorized(UsageError):
    """The token is missing or wrong."""

    code = "unauthorized"


class TooLarge(UsageError):
    """The upload is larger than the server takes."""

    code = "too_large"


class UploadTruncated(UsageError):
    """The upload ended before the length it announced."""

    code = "upload_truncated"


class RangeNotSatisfiable(UsageError):
    """The range lies beyond the end."""

    code = "range_not_satisfiable"


class ClientTooOld(UsageError):
    """This server does not speak to a client that old."""

    code = "client_too_old"


class ServerTooOld(UsageError):
    """This client does not speak to a server that old."""

    code = "server_too_old"


class BadCall(UsageError):
    """The call does not fit the artifact's signature."""

    code = "bad_call"


class Incompatible(UsageError):
    """The artifact does not run on this machine."""

    code = "incompatible"


class ForkedProcess(UsageError):
    """A loaded artifact cannot be called in a forked child."""

    code = "forked_process"


class HomeInUse(UsageError):
    """Another server runs on this home."""

    code = "home_in_use"


class HomeUnusable(UsageError):
    """The home directory cannot be used."""

    code = "home_unusable"


class PortTaken(UsageError):
    """The port is taken."""

    code = "port_taken"


class NamespacesRefused(UsageError):
    """The embedded PostgreSQL cannot run as root here without user namespaces."""

    code = "namespaces_refused"


class SchemaNewer(UsageError):
    """The database was written by a newer pt2hub."""

    code = "schema_newer"


class SchemaOlder(UsageError):
    """The database lacks revisions that this pt2hub needs."""

    code = "schema_older"


class BadConfiguration(UsageError):
    """A setting is wrong."""

    code = "bad_configuration"


class StorageUnavailable(TransientError):
    """The blob storage did not do what was asked."""

    code = "storage_unavailable"


class StorageFull(TransientError):
    """The blob storage has no room for the upload."""

    code = "storage_full"


class DatabaseUnavailable(TransientError):
    """The database did not answer."""

    code = "database_unavailable"


class ServerUnreachable(TransientError):
    """The pt2hub server did not answer."""

    code = "server_unreachable"


class WorkerLost(TransientError):
    """The worker or its build process went away."""

    code = "worker_lost"


class Busy(TransientError):
    """The server follows as many builds as it can."""

    code = "busy"


class CompileFailed(FatalError):
    """AOTInductor could not compile the exported program."""

    code = "compile_failed"


class LayoutUnproven(FatalError):
    """The recorded layout of the constants does not rebuild the compiler's own bytes."""

    code = "layout_unproven"


class ArtifactCrashed(FatalError):
    """The artifact ended its process by a signal."""

    code = "artifact_crashed"


class ArtifactHung(FatalError):
    """The artifact did not answer within the time limit."""

    code = "artifact_hung"


class ArtifactWrong(FatalError):
    """The artifact computes wrong numbers."""

    code = "artifact_wrong"


class DigestMismatch(FatalError):
    """Bytes do not have the digest that names them."""

    code = "digest_mismatch"


class CorruptArchive(FatalError):
    """The archive is not a well-formed .pt2."""

    code = "corrupt_archive"


class StaleAttempt(FatalError):
    """This attempt at a build was overtaken by another one."""

    code = "stale_attempt"


class BadResponse(FatalError):
    """The server's answer is not pt2hub's."""

    code = "bad_response"


class InternalError(FatalError):
    """Something failed that pt2hub did not foresee."""

    code = "internal"


def walk(root: type[Pt2hubError] = Pt2hubError) -> Iterator[type[Pt2hubError]]:
    """Every error class, the root first."""
    yield root
    for child in root.__subclasses__():
        yield from walk(child)
