"""What `publish` takes beside a spec or a model, by name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Required, TypeAlias, TypedDict, get_args

from pt2hub.errors import InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.client.events import OnEvent


Until: TypeAlias = Literal["ready", "measured"]
"""What is waited for: every build is final, or its artifacts are measured besides."""
_UNTIL: tuple[Until, ...] = get_args(Until)


class Options(TypedDict, total=False):
    """Of every publication.

    Attributes:
        priority: Of the builds, from -100 to 100; higher comes first.
        wait: `True` or `"ready"` returns only when every build is final, `"measured"` only when its artifacts are
            measured besides; failed builds carry their error.
        on_event: Called for every change while waiting.
        progress: Whether uploads and builds are shown on stderr. Where omitted they are in a terminal and in a
            notebook; builds only without `on_event`.
    """

    priority: int
    wait: bool | Until
    on_event: OnEvent | None
    progress: bool | None


class SpecOptions(Options, total=False):
    """Of a spec: files that are uploaded and named in it.

    Attributes:
        weights: A safetensors file with the model's `state_dict`, or the name of pretrained weights.
        code: A folder of Python source, for a source with an `entry`.
        program: A file of `torch.export.save`, which is the source and has the weights.
    """

    weights: str | Path | None
    code: str | Path | None
    program: str | Path | None


class ModelOptions(Options, total=False):
    """Of a live model; what is not named here is as for the field of a spec that has the name.

    Attributes:
        name: `team/name`.
        dynamic_shapes: As torch.export takes it; arguments may be left out, and each size needs a largest value.
        code: A folder of Python source to ship instead of exporting here; the model's weights go with it.
        entry: What of the code builds the model: `module:function`.
        entry_kwargs: Keyword arguments of that function, JSON values.
        requirements: Packages that the code needs, as pip names them.
    """

    name: Required[str]
    dynamic_shapes: Any
    code: str | Path | None
    entry: str
    entry_kwargs: Mapping[str, Any]
    requirements: Sequence[str]
    targets: Sequence[str | Mapping[str, Any]]
    outputs: Sequence[str]
    export: Mapping[str, Any]
    compile: Mapping[str, Any]
    checks: Mapping[str, Any]
    limits: Mapping[str, Any]
    measure: Mapping[str, Any]


_DICTS = ("entry_kwargs", "export", "compile", "checks", "limits", "measure")
_LISTS = ("requirements", "targets", "outputs")


def check_options(options: Mapping[str, Any], kind: type[SpecOptions | ModelOptions], what: str) -> None:
    """Refuses names that are none of `kind`, values of another form, and a model without its name.

    Args:
        options: As they were given.
        kind: Which there are.
        what: Of what, for the error.

    Raises:
        InvalidInput: One is unknown, missing or of another form.
    """
    known = kind.__annotations__
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise InvalidInput(
                f"publish takes no {name} with {what}",
                where=name,
                hint=f"Did you mean {near[0]}?" if near else f"It takes {', '.join(known)}.",
            )
        _check_form(name, options[name])
    waited_for(options.get("wait"))
    if "name" in known and not isinstance(options.get("name"), str):
        raise InvalidInput(
            "The model has no name", where="name", hint='Say where it belongs: name="team/model".'
        )


def waited_for(wait: object) -> Until | None:
    """Return what somebody waits for; None for nothing.

    Args:
        wait: `True` or `False`, or one of `Until`.

    Raises:
        InvalidInput: It is neither.
    """
    if wait is None or isinstance(wait, bool):
        return "ready" if wait else None
    for until in _UNTIL:
        if wait == until:
            return until
    raise InvalidInput(
        f"wait must be True, False, 'ready' or 'measured', got {wait!r:.80}",
        where="wait",
        hint="'ready' waits for the builds, 'measured' for the measurements besides; seconds are timeout=.",
    )


def _check_form(name: str, value: object) -> None:
    """Refuses what would fail later in Python's words, or be taken letter by letter."""
    wrong_dict = name in _DICTS and not isinstance(value, Mapping | None)
    wrong_list = name in _LISTS and (isinstance(value, str) or not isinstance(value, Sequence | None))
    if wrong_dict or wrong_list:
        raise InvalidInput(
            f"{type(value).__name__} is no {'dict' if wrong_dict else 'list'}",
            where=name,
            hint="Write its fields by name, as in a spec."
            if wrong_dict
            else f"Write a single one as [{value!r:.80}].",
        )
