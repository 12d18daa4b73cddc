"""The attached files of a spec."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from pt2hub.domain.attached_files.kinds import FileKind, check_media_type, kind_of, media_type_of, read_kind
from pt2hub.domain.attached_files.names import MAX_FILES, check_name, check_names
from pt2hub.domain.digests import DIGEST_PATTERN
from pt2hub.domain.publishing.spec_base import STRICT, whole
from pt2hub.errors import Pt2hubError


class FileSpec(BaseModel):
    """An attached file. A digest alone stands for an object with nothing else."""

    model_config = STRICT

    digest: Annotated[
        str,
        Field(
            pattern=whole(DIGEST_PATTERN),
            description="Digest of the uploaded file; `pt2hub publish` uploads the file at `path` instead.",
            examples=["sha256:" + 64 * "0"],
        ),
    ]
    kind: Annotated[
        FileKind,
        Field(
            description="What it is for; by default what its name suggests, else `other`. "
            "`card`, `license`, `example` and `document` are documentation, which can change after the publication and is "
            "not part of the version's identity.",
            examples=["tokenizer"],
        ),
    ]
    media_type: Annotated[
        str,
        Field(description="Media type; by default what its name suggests.", examples=["application/json"]),
    ]


def _complete(value: Any) -> Any:
    """Fill in what the names of the files say."""
    return {name: _filled(name, item) for name, item in value.items()} if isinstance(value, dict) else value


def _filled(name: Any, item: Any) -> Any:
    given = {"digest": item} if isinstance(item, str) else item
    if not isinstance(given, dict) or not isinstance(name, str):
        return given
    wanted = {key: value for key, value in given.items() if value is not None}
    with_defaults = {"kind": str(kind_of(name)), "media_type": media_type_of(name), **wanted}
    media_type, kind = with_defaults["media_type"], with_defaults["kind"]
    try:
        if isinstance(kind, str):
            read_kind(kind, f"{name}.kind")
        if isinstance(media_type, str):
            with_defaults["media_type"] = check_media_type(media_type, f"{name}.media_type")
    except Pt2hubError as exc:
        raise _translated(exc, given) from exc
    return with_defaults


def _check(value: dict[str, FileSpec]) -> dict[str, FileSpec]:
    try:
        check_names(list(value))
        for name in value:
            check_name(name)
    except Pt2hubError as exc:
        raise _translated(exc, None) from exc
    return value


def _translated(exc: Pt2hubError, given: object) -> PydanticCustomError:
    """Return an error of pydantic's, which is translated back with the error's own code."""
    path = (exc.where or "").removeprefix("files").removeprefix(".")
    context = {"text": exc.message, "path": path, "given": given} | (
        {"allowed": exc.hint} if exc.hint else {}
    )
    return PydanticCustomError(exc.code, "{text}", context)


Files = Annotated[
    dict[str, FileSpec],
    BeforeValidator(_complete),
    AfterValidator(_check),
    Field(
        description=f"Named files beside the model, at most {MAX_FILES}, by name. Those for programs (a tokenizer, labels, "
        "preprocessing, calibration) identify the version and never change.",
        examples=[{"tokenizer.json": {"digest": "sha256:" + 64 * "0"}}],
    ),
]
