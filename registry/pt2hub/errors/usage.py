"""Errors of the caller, the spec, the model or the settings: never retried."""

from __future__ import annotations

from pt2hub.errors.base import UsageError


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


class NotMeasured(Conflict):
    """The version is not measured: its measuring job failed or was cancelled, or there is none."""

    code = "not_measured"


class BuildActive(Conflict):
    """The build is queued or running."""

    code = "build_active"


class BuildOver(Conflict):
    """The build is over."""

    code = "build_over"


class UploadIncomplete(Conflict):
    """Parts of the upload are missing."""

    code = "upload_incomplete"


class Ambiguous(UsageError):
    """The reference names several things."""

    code = "ambiguous"


class UnknownMetric(InvalidInput):
    """The metric's name is none, or its unit is not the one that the name has."""

    code = "unknown_metric"


class GateRefused(Conflict):
    """The model's policy refuses the move: the version is worse than it allows."""

    code = "gate_refused"


class PolicyChanged(Conflict):
    """The policy was changed by someone else meanwhile."""

    code = "policy_changed"


class Forbidden(UsageError):
    """The token may not do this."""

    code = "forbidden"


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


class SandboxUnavailable(UsageError):
    """This machine cannot confine users' code."""

    code = "sandbox_unavailable"


class IsolationRefused(UsageError):
    """The server takes no worker that confines users' code as little as this one."""

    code = "isolation_refused"


class StorageUnsafe(UsageError):
    """The storage does not keep a promise that pt2hub relies on."""

    code = "storage_unsafe"


class LimitExceeded(UsageError):
    """The build used more memory, disk or processes than it may."""

    code = "limit_exceeded"


class OutputRefused(UsageError):
    """The build left something other than a plain file among its results."""

    code = "output_refused"


class ModelInterferes(UsageError):
    """The model's code interfered with its build's process: its channel to the worker, or pt2hub's own functions."""

    code = "model_interferes"
