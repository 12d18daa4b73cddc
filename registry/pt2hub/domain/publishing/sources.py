"""Model sources: a factory, a code archive or an exported program."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, Discriminator, Field, JsonValue, Tag, model_validator
from pydantic_core import PydanticCustomError

from pt2hub.domain.digests import DIGEST_PATTERN
from pt2hub.domain.publishing.spec_base import STRICT, whole
from pt2hub.errors import Detail, UnknownFactory

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_FACTORIES = ("torchvision.models", "timm", "transformers")
"""Modules with factories that specs may use by default; the operator may allow others (`PT2HUB_FACTORIES`). Importing a
module runs its code, so only the operator can extend the list."""

_CALLABLE = r"[A-Za-z_][\w.]*:[A-Za-z_]\w*"
_MODULE = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_REQUIREMENT = r"[A-Za-z0-9][\w.-]*(?:\[[\w, .-]+\])?(?: ?[<>=!~][\w<>=!~., *+-]*)?"
"""A pip requirement, roughly; the worker parses it completely."""


class _Part(BaseModel):
    model_config = STRICT


class _Built(_Part):
    """A source that calls a function to build the module."""

    kwargs: Annotated[
        dict[str, JsonValue],
        Field(description="Keyword arguments of the call, JSON values.", examples=[{"num_classes": 10}]),
    ] = {}
    seed: Annotated[
        int,
        Field(
            ge=0,
            lt=2**63,
            description="Seed of torch's random generator before the call; determines the initial weights.",
            examples=[0],
        ),
    ] = 0


class FactorySource(_Built):
    """A function or class in an installed package that builds the module."""

    factory: Annotated[
        str,
        Field(
            pattern=whole(_CALLABLE),
            max_length=200,
            description="`module:function`; the module must be on the operator's list (`PT2HUB_FACTORIES`) and "
            "installed on the worker.",
            examples=["torchvision.models:resnet18", "timm:create_model", "transformers:BertModel"],
        ),
    ]
    config: Annotated[
        dict[str, JsonValue] | None,
        Field(
            description="Fields of the configuration object from which a transformers class is built; Auto classes "
            "also need `model_type`.",
            examples=[{"num_hidden_layers": 4}],
        ),
    ] = None

    @property
    def module(self) -> str:
        """The factory's module."""
        return self.factory.partition(":")[0]


class CodeSource(_Built):
    """An uploaded archive of Python code."""

    code: Annotated[
        str,
        Field(
            pattern=whole(DIGEST_PATTERN),
            description="Digest of the uploaded zip; `pt2hub publish --code FOLDER` creates it.",
            examples=["sha256:" + 64 * "0"],
        ),
    ]
    entry: Annotated[
        str,
        Field(
            pattern=whole(_CALLABLE),
            max_length=200,
            description="`module:function` in the archive.",
            examples=["net:build"],
        ),
    ]
    entry_is: Annotated[
        Literal["builder", "function"],
        Field(
            description="`builder`: a function or class that is called with `kwargs` and returns the module; "
            "`function`: the model itself, as a plain function of the inputs.",
            examples=["builder"],
        ),
    ] = "builder"
    requirements: Annotated[
        list[Annotated[str, Field(pattern=whole(_REQUIREMENT), max_length=200)]],
        Field(
            max_length=100,
            description="Packages that the code requires, in pip's syntax. They must already be installed on the worker; "
            "nothing is installed.",
            examples=[["timm>=1.0"]],
        ),
    ] = []

    @model_validator(mode="after")
    def _no_arguments(self) -> Self:
        if self.entry_is == "function" and self.kwargs:
            context = {"path": "kwargs", "given": self.kwargs}
            raise PydanticCustomError(
                "invalid_input",
                "a function is called with the inputs: move its other arguments to `fixed`",
                context,
            )
        return self


class ProgramSource(_Part):
    """An exported program, without its weights and example inputs."""

    program: Annotated[
        str,
        Field(
            pattern=whole(DIGEST_PATTERN),
            description="Digest of the uploaded program; `pt2hub publish --program FILE` splits a file of "
            "`torch.export.save` into the program and its `weights`.",
            examples=["sha256:" + 64 * "0"],
        ),
    ]
    code: Annotated[
        str | None,
        Field(
            pattern=whole(DIGEST_PATTERN),
            description="Digest of an uploaded zip with the modules that register the program's operators or have its Triton "
            "kernels; `pt2hub publish --program FILE --code FOLDER` creates it.",
            examples=["sha256:" + 64 * "0"],
        ),
    ] = None
    operators: Annotated[
        list[Annotated[str, Field(pattern=whole(_MODULE), max_length=200)]],
        Field(
            max_length=100,
            description="Modules of `code` to import before the program is loaded; where omitted, those whose source names an "
            "operator of the program.",
            examples=[["kernels"]],
        ),
    ] = []

    @model_validator(mode="after")
    def _operators_of_code(self) -> Self:
        if self.operators and self.code is None:
            context = {"path": "operators", "given": self.operators}
            raise PydanticCustomError(
                "invalid_input", "operators are modules of code, which is missing", context
            )
        return self


_KINDS: dict[str, type[_Part]] = {"factory": FactorySource, "code": CodeSource, "program": ProgramSource}
_ONE_OF = ", ".join(_KINDS)


def _one_kind(value: Any) -> Any:
    """Reject sources with no kind or several; pydantic's own error would be less clear."""
    if isinstance(value, _Part):
        return value
    if not isinstance(value, dict):
        raise PydanticCustomError(
            "invalid_input", "must be an object", {"allowed": f"an object with one of {_ONE_OF}"}
        )
    if _is_program(value) or len([name for name in _KINDS if name in value]) == 1:
        return value
    for name in () if any(kind in value for kind in _KINDS) else value:
        if near := difflib.get_close_matches(str(name), _KINDS, n=1):
            allowed = ", ".join([*near, *(kind for kind in _KINDS if kind not in near)])
            context = {"path": str(name), "given": value[name], "allowed": allowed}
            raise PydanticCustomError("invalid_input", "unknown field", context)
    given = [name for name in _KINDS if name in value] or value
    raise PydanticCustomError("invalid_input", f"give exactly one of {_ONE_OF}", {"given": given})


def _kind(value: Any) -> str:
    """Return the kind of a source by its distinguishing field."""
    if isinstance(value, dict) and _is_program(value):
        return ProgramSource.__name__
    found = (cls for name, cls in _KINDS.items() if isinstance(value, cls) or name in value)
    return next(found).__name__


def _is_program(value: dict[str, Any]) -> bool:
    """Return whether a source is a program, perhaps with the code of its operators."""
    return "program" in value and not {"factory", "entry"} & value.keys()


Source = Annotated[
    Annotated[FactorySource, Tag("FactorySource")]
    | Annotated[CodeSource, Tag("CodeSource")]
    | Annotated[ProgramSource, Tag("ProgramSource")],
    Discriminator(_kind),
    BeforeValidator(_one_kind),
]
"""One of the three sources, distinguished by its field."""


def check_factory(source: FactorySource, allowed: Sequence[str]) -> None:
    """Reject factories outside the operator's list.

    Raises:
        UnknownFactory: The module is not on the list.
    """
    if source.module not in allowed:
        message, names = f"module {source.module} is not on the list of allowed factories", ", ".join(allowed)
        raise UnknownFactory(
            message,
            where="source.factory",
            hint=f"Allowed: {names}. The operator adds installed modules with PT2HUB_FACTORIES.",
            details=(Detail("source.factory", message, given=source.factory, allowed=names),),
            context={"given": source.factory, "allowed": list(allowed)},
        )
