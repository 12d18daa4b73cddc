"""docs/reference/lock.md, and the JSON Schema beside it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pt2hub.client.lock.lock_file import LOCK_NAME, format_lock
from pt2hub.client.lock.lock_schema import SCHEMA
from pt2hub.domain.digests import digest_bytes
from pt2hub.domain.locks import LOCK_SCHEMA, Lock, LockedArtifact, LockedBlob, LockedModel
from pt2hub.domain.storage import StorageLocation
from reference_generator import markdown as md
from reference_generator.schemas import Schema, fields, limits_of, type_of

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA_NAME = f"{LOCK_NAME}.schema.json"
_INTRO = f"""
`{LOCK_NAME}` pins references to versions, and every version's artifacts to digests. It is TOML, written by
`pt2hub lock` with one fact per line and sorted: equal locks are equal files, and Git merges branches that lock different
models. [Pin and lock](../how-to/pin-and-lock.md) explains its use.

Every table and field is listed here; others are refused. A file with a higher `schema` is refused with `client_too_old`,
anything else that does not belong there with `lock_invalid`. The same as JSON Schema: [{SCHEMA_NAME}]({SCHEMA_NAME}).
"""


def page() -> str:
    """Return the page."""
    parts = [_section(path, schema) for path, schema in _tables("", SCHEMA)]
    return md.document("The lock file", _INTRO, md.fence(format_lock(_example()), "toml"), *parts)


def schema() -> str:
    """Return the text of the JSON Schema."""
    return json.dumps(SCHEMA, indent=2) + "\n"


def _tables(path: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield every table with its name; blobs are all alike and come once."""
    yield path, schema
    for name, field, _ in fields(schema):
        inner = field.get("items", field)
        if inner["type"] == "object" and name not in ("config", "code", "weights"):
            yield from _tables(f"{path}.{name}".lstrip("."), inner)


def _section(path: str, schema: Schema) -> str:
    rows = [
        (
            md.code(name),
            "table" if field["type"] == "object" else type_of(field, md.code).replace("object", "table"),
            "yes" if required else "no",
            limits_of(field),
            field["description"],
        )
        for name, field, required in fields(schema)
    ]
    title = "The document" if not path else md.code(path)
    alike = "`config`, `code` and `weights` have the same fields." if path.endswith("manifest") else ""
    head = ("field", "type", "required", "limits", "meaning")
    return "\n\n".join(
        (md.heading(2, title), f"{schema['description']} {alike}".strip(), md.table(head, rows))
    )


def _example() -> Lock:
    def blob(text: str, size: int) -> LockedBlob:
        return LockedBlob(digest_bytes(text.encode()), size)

    def artifact(target: str, code_bytes: int) -> LockedArtifact:
        def own(name: str, size: int) -> LockedBlob:
            return blob(f"{target} {name}", size)

        return LockedArtifact(
            target,
            manifest=own("manifest", 721),
            config=own("config", 48_213),
            code=own("code", code_bytes),
            weights=blob("weights", 46_830_592),
        )

    targets = {"torch2.11-cu130-sm90": 402_113, "torch2.13-cpu-x86_64_v3": 251_904}
    artifacts = tuple(artifact(name, size) for name, size in targets.items())
    storage = StorageLocation("s3://models/pt2hub", "https://s3.example", "eu-central-1")
    return Lock(
        LOCK_SCHEMA, "https://pt2hub.example", (LockedModel("vision/resnet18@prod", 3, artifacts),), storage
    )
