"""Every error of pt2hub, each with a stable code.

This package imports nothing of pt2hub and knows no transport: the HTTP status of a code is the API's table.

    Pt2hubError
    +-- UsageError              the caller, the spec or the model is at fault; never retried
    |   +-- InvalidInput        a document or an argument has wrong fields (details name each)
    |   |   +-- UnknownTarget, NoLiveWorker
    |   +-- UnknownFactory, FactoryFailed, FactoryArguments, UnknownInput, InputRefused, IndexOutOfRange
    |   +-- ExampleOutOfRange, DimensionSpecialised, NondeterministicModel, UnsupportedOutput, NanOutput
    |   +-- WeightsMismatch, ExportFailed, SourceDrifted, NoPower, ToleranceMissed, BuildTimedOut
    |   +-- LimitExceeded, OutputRefused
    |   +-- NotFound, Ambiguous, Unauthorized, TooLarge, UploadTruncated, RangeNotSatisfiable
    |   +-- Conflict
    |   |   +-- AliasMoved, NotReady, BuildActive, BuildOver, UploadIncomplete
    |   +-- ClientTooOld, ServerTooOld, BadCall, Incompatible, ForkedProcess
    |   +-- HomeInUse, HomeUnusable, PortTaken, NamespacesRefused, SchemaNewer, SchemaOlder, BadConfiguration
    |   +-- SandboxUnavailable, IsolationRefused, StorageUnsafe
    +-- TransientError          storage, network or a worker failed; worth another try
    |   +-- StorageUnavailable, StorageFull, BlobGone, DatabaseUnavailable, ServerUnreachable, WorkerLost, Busy
    +-- FatalError              our bug or a broken worker; never retried, alarmed
        +-- CompileFailed, LayoutUnproven, ArtifactCrashed, ArtifactHung, ArtifactWrong, DigestMismatch
        +-- CorruptArchive, StaleAttempt, BadResponse, InternalError
"""

from __future__ import annotations

from pt2hub.errors.base import (
    UNSEEN,
    Detail,
    FatalError,
    Pt2hubError,
    TransientError,
    UsageError,
    walk,
)
from pt2hub.errors.others import (
    ArtifactCrashed,
    ArtifactHung,
    ArtifactWrong,
    BadResponse,
    BlobGone,
    Busy,
    CompileFailed,
    CorruptArchive,
    DatabaseUnavailable,
    DigestMismatch,
    InternalError,
    LayoutUnproven,
    ServerUnreachable,
    StaleAttempt,
    StorageFull,
    StorageUnavailable,
    WorkerLost,
)
from pt2hub.errors.usage import (
    AliasMoved,
    Ambiguous,
    BadCall,
    BadConfiguration,
    BuildActive,
    BuildOver,
    BuildTimedOut,
    ClientTooOld,
    Conflict,
    DimensionSpecialised,
    ExampleOutOfRange,
    ExportFailed,
    FactoryArguments,
    FactoryFailed,
    ForkedProcess,
    HomeInUse,
    HomeUnusable,
    Incompatible,
    IndexOutOfRange,
    InputRefused,
    InvalidInput,
    IsolationRefused,
    LimitExceeded,
    NamespacesRefused,
    NanOutput,
    NoLiveWorker,
    NondeterministicModel,
    NoPower,
    NotFound,
    NotReady,
    OutputRefused,
    PortTaken,
    RangeNotSatisfiable,
    SandboxUnavailable,
    SchemaNewer,
    SchemaOlder,
    ServerTooOld,
    SourceDrifted,
    StorageUnsafe,
    ToleranceMissed,
    TooLarge,
    Unauthorized,
    UnknownFactory,
    UnknownInput,
    UnknownTarget,
    UnsupportedOutput,
    UploadIncomplete,
    UploadTruncated,
    WeightsMismatch,
)

__all__ = [
    "UNSEEN",
    "AliasMoved",
    "Ambiguous",
    "ArtifactCrashed",
    "ArtifactHung",
    "ArtifactWrong",
    "BadCall",
    "BadConfiguration",
    "BadResponse",
    "BlobGone",
    "BuildActive",
    "BuildOver",
    "BuildTimedOut",
    "Busy",
    "ClientTooOld",
    "CompileFailed",
    "Conflict",
    "CorruptArchive",
    "DatabaseUnavailable",
    "Detail",
    "DigestMismatch",
    "DimensionSpecialised",
    "ExampleOutOfRange",
    "ExportFailed",
    "FactoryArguments",
    "FactoryFailed",
    "FatalError",
    "ForkedProcess",
    "HomeInUse",
    "HomeUnusable",
    "Incompatible",
    "IndexOutOfRange",
    "InputRefused",
    "InternalError",
    "InvalidInput",
    "IsolationRefused",
    "LayoutUnproven",
    "LimitExceeded",
    "NamespacesRefused",
    "NanOutput",
    "NoLiveWorker",
    "NoPower",
    "NondeterministicModel",
    "NotFound",
    "NotReady",
    "OutputRefused",
    "PortTaken",
    "Pt2hubError",
    "RangeNotSatisfiable",
    "SandboxUnavailable",
    "SchemaNewer",
    "SchemaOlder",
    "ServerTooOld",
    "ServerUnreachable",
    "SourceDrifted",
    "StaleAttempt",
    "StorageFull",
    "StorageUnavailable",
    "StorageUnsafe",
    "ToleranceMissed",
    "TooLarge",
    "TransientError",
    "Unauthorized",
    "UnknownFactory",
    "UnknownInput",
    "UnknownTarget",
    "UnsupportedOutput",
    "UploadIncomplete",
    "UploadTruncated",
    "UsageError",
    "WeightsMismatch",
    "WorkerLost",
    "walk",
]
