"""Where a model comes from: a factory, an archive of source code, or an exported program."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, Discriminator, Field, JsonValue, Tag, model_validator
from pydantic_core import PydanticCustomError

from pt2hub.domain.digests import DIGEST_PATTERN
from pt2hub.domain.parts import STRICT, whole
from pt2hub.errors import Detail, UnknownFactory

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_FACTORIES = ("torchvision.models", "timm", "transformers")
"""Modules of installed packages whose factories a spec may name; the operator may list others
(`PT2HUB_FACTORIES`). Importing a module runs its code, so the list is the operator's and not the spec's."""

_CALLABLE = r"[A-Za-z_][\w.]*:[A-Za-z_]\w*"
_REQUIREMENT = r"[A-Za-z0-9][\w.-]*(?:\[[\w, .-]+\])?(?: ?[<>=!~][\w<>=!~., *+-]*)?"
"""A name with versions, as pip takes it; the worker reads it in full."""


class _Part(BaseModel):
    model_config = STRICT


class _Built(_Part):
    """A source whose function is called."""

    kwargs: Annotated[
        dict[str, JsonValue],
        Field(description="Keyword arguments of the call, JSON values.", examples=[{"num_classes": 10}]),
    ] = {}
    seed: Annotated[
        int,
        Field(
            ge=0,
            lt=2**63,
            description="Seed of torch's generator before the call; decides the initial weights.",
            examples=[0],
        ),
    ] = 0


class FactorySource(_Built):
    """A function or class of an installed package that builds the module."""

    factory: Annotated[
        str,
        Field(
            pattern=whole(_CALLABLE),
            max_length=200,
            description="`module:function`; the module is on the operator's list (`PT2HUB_FACTORIES`) and "
            "installed on the worker.",
            examples=["torchvision.models:resnet18", "timm:create_model", "transformers:BertModel"],
        ),
    ]
    config: Annotated[
        dict[str, JsonValue] | None,
        Field(
            description="Fields of the configuration object that a transformers class is built from; an Auto class "
            "also needs `model_type`.",
            examples=[{"num_hidden_layers": 4}],
        ),
    ] = None

    @property
    def module(self) -> str:
        """The module the factory lives in."""
        return self.factory.partition(":")[0]


class CodeSource(_Built):
    """An uploaded archive of Python source."""

    code: Annotated[
        str,
        Field(
            pattern=whole(DIGEST_PATTERN),
            description="Digest of the uploaded zip; `pt2hub publish --code FOLDER` makes it.",
            examples=["sha256:" + 64 * "0"],
        ),
    ]
    entry: Annotated[
        str,
        Field(
            pattern=whole(_CALLABLE),
            max_length=200,
            description="`module:function` of the archive.",
            examples=["net:build"],
        ),
    ]
    entry_is: Annotated[
        Literal["builder", "function"],
        Field(
            description="`builder`: a function or class that is called with `kwargs` and returns the module; "
            "`function`: the model itself, a plain function of the inputs.",
            examples=["builder"],
        ),
    ] = "builder"
    requirements: Annotated[
        list[Annotated[str, Field(pattern=whole(_REQUIREMENT), max_length=200)]],
        Field(
            max_length=100,
            description="Packages that the code needs, as pip names them. They must be on the worker already: "
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
                "a function is called with the inputs: write its other arguments to `fixed`",
                context,
            )
        return self


class ProgramSource(_Part):
    """An exported program, without its weights and example inputs."""

    program: Annotated[
        str,
        Field(
            pattern=whole(DIGEST_PATTERN),
            description="Digest of the uploaded program; `pt2hub publish --program FILE` takes a file of "
            "`torch.export.save` apart, and `weights` is then the other part.",
            examples=["sha256:" + 64 * "0"],
        ),
    ]


_KINDS: dict[str, type[_Part]] = {"factory": FactorySource, "code": CodeSource, "program": ProgramSource}
_ONE_OF = ", ".join(_KINDS)


def _one_kind(value: Any) -> Any:  # noqa: ANN401  # whatever was given
    """Refuses what says no kind of source, or several: pydantic would say that no branch fits."""
    if isinstance(value, _Part):
        return value
    if not isinstance(value, dict):
        raise PydanticCustomError(
            "invalid_input", "an object belongs here", {"allowed": f"an object with one of {_ONE_OF}"}
        )
    if len([name for name in _KINDS if name in value]) == 1:
        return value
    for name in () if any(kind in value for kind in _KINDS) else value:
        if near := difflib.get_close_matches(str(name), _KINDS, n=1):
            allowed = ", ".join([*near, *(kind for kind in _KINDS if kind not in near)])
            context = {"path": str(name), "given": value[name], "allowed": allowed}
            raise PydanticCustomError("invalid_input", "there is no such field", context)
    given = [name for name in _KINDS if name in value] or value
    raise PydanticCustomError("invalid_input", f"give exactly one of {_ONE_OF}", {"given": given})


def _kind(value: Any) -> str:  # noqa: ANN401  # one of the classes, or an object with a field of one
    """The kind of source, by the field that only it has."""
    found = (cls for name, cls in _KINDS.items() if isinstance(value, cls) or name in value)
    return next(found).__name__


Source = Annotated[
    Annotated[FactorySource, Tag("FactorySource")]
    | Annotated[CodeSource, Tag("CodeSource")]
    | Annotated[ProgramSource, Tag("ProgramSource")],
    Discriminator(_kind),
    BeforeValidator(_one_kind),
]
"""One of the three, told apart by the field that only it has."""


def check_factory(source: FactorySource, allowed: Sequence[str]) -> None:
    """Refuses factories outside the operator's list.

    Raises:
        UnknownFactory: The module is not on the list.
    """
    if source.module not in allowed:
        message, names = f"module {source.module} is not on the list of factories", ", ".join(allowed)
        raise UnknownFactory(
            message,
            where="source.factory",
            hint=f"Allowed: {names}. The operator adds installed modules with PT2HUB_FACTORIES.",
            details=(Detail("source.factory", message, given=source.factory, allowed=names),),
            context={"given": source.factory, "allowed": list(allowed)},
        )
