"""Errors of the caller, the spec, the model or the configuration; never retried."""

from __future__ import annotations

from pt2hub.errors.base import UsageError


class InvalidInput(UsageError):
    """Invalid input."""

    code = "invalid_input"


class UnknownTarget(InvalidInput):
    """The target name must have the form torch<x.y>-<device>-<arch>."""

    code = "unknown_target"


class NoLiveWorker(InvalidInput):
    """No live worker offers the target."""

    code = "no_live_worker"


class UnknownFactory(UsageError):
    """The factory does not exist or is not on the allow-list."""

    code = "unknown_factory"


class FactoryFailed(UsageError):
    """The factory raised an exception."""

    code = "factory_failed"


class FactoryArguments(UsageError):
    """The factory does not accept these arguments."""

    code = "factory_arguments"


class UnknownInput(UsageError):
    """The input is not an argument of the model's forward."""

    code = "unknown_input"


class InputRefused(UsageError):
    """The model does not accept the example inputs."""

    code = "input_refused"


class IndexOutOfRange(UsageError):
    """An integer input contains indices outside an embedding table of the model."""

    code = "index_out_of_range"


class ExampleOutOfRange(UsageError):
    """The example size of a dimension is outside its declared range."""

    code = "example_out_of_range"


class DimensionSpecialised(UsageError):
    """The export fixed a dimension that the spec declares dynamic."""

    code = "dimension_specialised"


class NondeterministicModel(UsageError):
    """Two eager runs with the same inputs give different outputs."""

    code = "nondeterministic_model"


class UnsupportedOutput(UsageError):
    """The model returns something other than tensors."""

    code = "unsupported_output"


class NanOutput(UsageError):
    """The model's own output contains NaN or infinity."""

    code = "nan_output"


class WeightsMismatch(UsageError):
    """The weights file does not match the model."""

    code = "weights_mismatch"


class ExportFailed(UsageError):
    """The model could not be exported."""

    code = "export_failed"


class SourceDrifted(UsageError):
    """The source no longer reproduces the golden outputs stored with the version."""

    code = "source_drifted"


class NoPower(UsageError):
    """Verification cannot distinguish a correct artifact from a wrong one for this model."""

    code = "no_power"


class ToleranceMissed(UsageError):
    """The artifact's error is just above the tolerance."""

    code = "tolerance_missed"


class RebuildDiffers(UsageError):
    """A rebuild wrote other bytes than the damaged files had, so nothing could be replaced by them."""

    code = "rebuild_differs"


class BuildTimedOut(UsageError):
    """The build exceeded its time limit."""

    code = "build_timed_out"


class NotFound(UsageError):
    """Not found."""

    code = "not_found"


class NotRecorded(NotFound):
    """The artifact has no such record: its build was older, or was not asked to keep one."""

    code = "not_recorded"


class Deleted(NotFound):
    """It was deleted; its number or digest is not used again."""

    code = "deleted"


class Conflict(UsageError):
    """The resource was changed by someone else in the meantime."""

    code = "conflict"


class ReindexDue(Conflict):
    """The database lacks versions that the storage has, whose numbers would be given again."""

    code = "reindex_due"


class AliasMoved(Conflict):
    """The alias was moved by someone else in the meantime."""

    code = "alias_moved"


class LabelChanged(Conflict):
    """The label was changed by someone else in the meantime."""

    code = "label_changed"


class LineageCycle(Conflict):
    """The version would be derived from itself, through its parents."""

    code = "lineage_cycle"


class LabelImmutable(Conflict):
    """The label states a fact about the version's origin, and its value cannot change."""

    code = "label_immutable"


class AliasNotMoved(Conflict):
    """The alias was not moved as expected within the time."""

    code = "alias_not_moved"


class NotReady(Conflict):
    """The version has no artifact to pull yet."""

    code = "not_ready"


class NotMeasured(Conflict):
    """The version has no measurements: its measuring job failed, was cancelled or does not exist."""

    code = "not_measured"


class BuildActive(Conflict):
    """The build is still queued or running."""

    code = "build_active"


class BuildOver(Conflict):
    """The build has already ended."""

    code = "build_over"


class UploadIncomplete(Conflict):
    """The upload is incomplete: some parts are missing."""

    code = "upload_incomplete"


class Ambiguous(UsageError):
    """The reference is ambiguous."""

    code = "ambiguous"


class UnknownMetric(InvalidInput):
    """Unknown metric, or wrong unit for the metric."""

    code = "unknown_metric"


class PromotionCheckFailed(Conflict):
    """A promotion check failed: the version is worse than the model's policy allows."""

    code = "promotion_check_failed"


class VersionYanked(Conflict):
    """The version is yanked: no alias may move to it, and it cannot be yanked again."""

    code = "version_yanked"


class VersionInUse(Conflict):
    """Aliases point to the version; they must move before it can be yanked."""

    code = "version_in_use"


class StillNeeded(Conflict):
    """Something else needs what should be deleted."""

    code = "still_needed"


class DigestRefused(Conflict):
    """Bytes with this digest were removed by a forced deletion and must not be stored again."""

    code = "digest_refused"


class CollectionRefused(Conflict):
    """The database lacks references, so no blob can be collected."""

    code = "collection_refused"


class PolicyChanged(Conflict):
    """The policy was changed by someone else in the meantime."""

    code = "policy_changed"


class Forbidden(UsageError):
    """Permission denied."""

    code = "forbidden"


class Unauthorized(UsageError):
    """The token is missing or invalid."""

    code = "unauthorized"


class TokenRevoked(Unauthorized):
    """The token was revoked."""

    code = "token_revoked"


class TokenExpired(Unauthorized):
    """The token has expired."""

    code = "token_expired"


class IdTokenRejected(Unauthorized):
    """The ID token of an OpenID Connect provider is malformed."""

    code = "id_token_rejected"


class IdTokenWrongIssuer(IdTokenRejected):
    """The ID token is of a provider that this server does not trust."""

    code = "id_token_wrong_issuer"


class IdTokenWrongAudience(IdTokenRejected):
    """The ID token is for another server."""

    code = "id_token_wrong_audience"


class IdTokenExpired(IdTokenRejected):
    """The ID token has expired or is not valid yet."""

    code = "id_token_expired"


class IdTokenSignature(IdTokenRejected):
    """The ID token is not signed by its provider."""

    code = "id_token_signature"


class SignInRequired(Unauthorized):
    """The person must sign in again in a browser."""

    code = "sign_in_required"


class SignInUnavailable(UsageError):
    """The server has no OpenID Connect provider to sign in with."""

    code = "sign_in_unavailable"


class SignInDenied(Unauthorized):
    """The provider did not let the person sign in."""

    code = "sign_in_denied"


class SignInMismatch(Unauthorized):
    """The answer of the provider belongs to no sign-in that this browser began."""

    code = "sign_in_mismatch"


class SignInCodeRejected(Unauthorized):
    """The provider does not accept the code that it gave for the sign-in."""

    code = "sign_in_code_rejected"


class AuthorizationPending(UsageError):
    """The person has not decided yet about the device's request."""

    code = "authorization_pending"


class SlowDown(AuthorizationPending):
    """The device asks too often whether its request was approved."""

    code = "slow_down"


class AccessDenied(Forbidden):
    """The person denied the device's request."""

    code = "access_denied"


class DeviceCodeExpired(UsageError):
    """The device's request does not exist, has expired, or got its token."""

    code = "expired_token"


class NoGrant(Forbidden):
    """No trust rule applies to the ID token."""

    code = "no_grant"


class AddressRefused(UsageError):
    """The server does not send webhooks to this address."""

    code = "address_refused"


class TooLarge(UsageError):
    """The upload exceeds the server's size limit."""

    code = "too_large"


class QuotaExceeded(UsageError):
    """The team or token has reached a limit of the server."""

    code = "quota_exceeded"


class UploadTruncated(UsageError):
    """The upload ended before its announced length."""

    code = "upload_truncated"


class RangeNotSatisfiable(UsageError):
    """The requested range is beyond the end."""

    code = "range_not_satisfiable"


class ClientTooOld(UsageError):
    """The server does not support clients this old."""

    code = "client_too_old"


class ServerTooOld(UsageError):
    """The client does not support servers this old."""

    code = "server_too_old"


class BadCall(UsageError):
    """The call does not match the artifact's signature."""

    code = "bad_call"


class Incompatible(UsageError):
    """The artifact is incompatible with this machine."""

    code = "incompatible"

    def _list_details(self) -> list[str]:
        """Return a table: an artifact's target once, and beside it its reasons."""
        width = max((len(item.path) for item in self.details), default=0)
        names = [""] + [item.path for item in self.details]
        return [
            f"  {'' if item.path == before else item.path:{width}}  {item.message}"
            for before, item in zip(names, self.details, strict=False)
        ]


class Offline(UsageError):
    """The client is offline, and something that it needs is not in the cache."""

    code = "offline"


class CudaGraphUnavailable(UsageError):
    """Calls of the artifact cannot become a CUDA graph."""

    code = "cuda_graph_unavailable"


class ForkedProcess(UsageError):
    """A loaded artifact cannot be called in a forked child process."""

    code = "forked_process"


class HomeInUse(UsageError):
    """Another server is using this home directory."""

    code = "home_in_use"


class HomeUnusable(UsageError):
    """The home directory cannot be used."""

    code = "home_unusable"


class DiskFull(UsageError):
    """The disk lacks space for the file."""

    code = "disk_full"


class PortTaken(UsageError):
    """The port is already in use."""

    code = "port_taken"


class NamespacesRefused(UsageError):
    """The embedded PostgreSQL cannot run as root without user namespaces."""

    code = "namespaces_refused"


class SchemaNewer(UsageError):
    """The database schema was written by a newer pt2hub."""

    code = "schema_newer"


class SchemaOlder(UsageError):
    """The database schema is older than this pt2hub requires."""

    code = "schema_older"


class BadConfiguration(UsageError):
    """Invalid configuration."""

    code = "bad_configuration"


class SandboxUnavailable(UsageError):
    """This machine cannot sandbox users' code."""

    code = "sandbox_unavailable"


class IsolationRefused(UsageError):
    """The worker's isolation is weaker than the server requires."""

    code = "isolation_refused"


class StorageUnsafe(UsageError):
    """The storage lacks a guarantee that pt2hub relies on."""

    code = "storage_unsafe"


class LimitExceeded(UsageError):
    """The build exceeded its memory, disk or process limit."""

    code = "limit_exceeded"


class OutputRefused(UsageError):
    """The build's results contain something other than plain files."""

    code = "output_refused"


class ModelInterferes(UsageError):
    """The model's code interfered with its build process or with pt2hub's own functions."""

    code = "model_interferes"
