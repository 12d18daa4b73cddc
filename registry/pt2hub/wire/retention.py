"""Deletions and retention policies in API responses."""

from __future__ import annotations

from dataclasses import dataclass

from pt2hub.domain.principals import Principal


@dataclass(frozen=True, slots=True)
class KeptThing:
    """Something that cannot be deleted.

    Attributes:
        name: `team/name@3`, or a target of it.
        reasons: What needs it, in words.
    """

    name: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SharedBlob:
    """A blob that stays because something else needs it too.

    Attributes:
        digest: Its digest.
        what: What it is, such as `weights`.
        size: In bytes.
        needed_by: The versions that need it, at most 1,000; those that may not be read are left out.
        title: What it is and whose, such as `weights of vision/resnet18@3 (sha256:0a1b2c3d4e5f, 44.7 MiB)`.
        undecided: Whether a forced deletion is refused unless it says what happens to it.
    """

    digest: str
    what: str
    size: int
    needed_by: tuple[str, ...]
    title: str = ""
    undecided: bool = True


@dataclass(frozen=True, slots=True)
class DeletionView:
    """A deletion, or what one would do.

    Attributes:
        name: What is deleted: `team/name@3`, `team/name`, a build's id or a blob's digest.
        deleted: Whether it was deleted; false for a dry run.
        forced: Whether the deletion is forced.
        goes: What goes, in words.
        kept: What stops the deletion; nothing is deleted unless it is empty.
        notes: What else happens, in words.
        shared: Blobs that stay because something else needs them.
        freed_bytes: Size of the blobs that nothing else needs; the collector removes them after its grace, those uploaded
            lately after six hours at least.
        freed_blobs: Their number.
        refused: Digests that nobody can store again, after a forced deletion.
    """

    name: str
    deleted: bool
    forced: bool
    goes: tuple[str, ...]
    kept: tuple[KeptThing, ...]
    notes: tuple[str, ...]
    shared: tuple[SharedBlob, ...]
    freed_bytes: int
    freed_blobs: int
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RetentionView:
    """A retention policy.

    Attributes:
        scope: `team/name`, or `team` for all its models.
        set_on: The scope whose policy holds; null where everything is kept.
        last: How many of the newest versions are kept; null keeps everything.
        pulled_within_days: Versions that were pulled within so many days are kept too; null for none.
        by: Who set it.
        at: When, ISO 8601, UTC.
    """

    scope: str
    set_on: str | None = None
    last: int | None = None
    pulled_within_days: int | None = None
    by: Principal | None = None
    at: str | None = None


@dataclass(frozen=True, slots=True)
class RetentionPreview:
    """What a retention policy deletes, and what it keeps although it is old enough.

    Attributes:
        policies: The policy of each model.
        goes: Versions that the next run deletes.
        kept: Versions that the policy would delete but for what needs them.
        freed_bytes: Size of the blobs that only these versions need.
        notes: What holds the policies up, in words.
    """

    policies: tuple[RetentionView, ...]
    goes: tuple[str, ...]
    kept: tuple[KeptThing, ...]
    freed_bytes: int
    notes: tuple[str, ...] = ()
