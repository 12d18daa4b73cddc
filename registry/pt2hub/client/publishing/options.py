"""Keyword options of `publish`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Required, TypedDict

from pt2hub.client.builds.until import parse_until
from pt2hub.errors import InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.client.builds.events import OnEvent
    from pt2hub.client.builds.until import Until


class Options(TypedDict, total=False):
    """Options of every publication.

    Attributes:
        priority: Of the builds, from -100 to 100; higher comes first.
        wait: `True` or `"ready"` returns only when every build is final, `"measured"` only when its artifacts are
            measured besides; failed builds carry their error.
        labels: Labels of the version by key, over those of the spec; no part of its identity.
        derived_from: What the version is derived from, besides what the spec says: `fine-tuned:team/name@3`,
            `quantized:hf:team/name@revision`; no part of its identity.
        ci_labels: Whether a CI job's commit, repository, branch and run become labels (default: yes).
        progress: Whether uploads and builds are shown on stderr. Where omitted they are in a terminal and in a
            notebook; builds only without `on_event`.
        files: Files to attach, by name: a path, or an object with `path` and optionally `kind` and `media_type`.
    """

    labels: Mapping[str, str] | None
    derived_from: Sequence[str] | None
    ci_labels: bool
    priority: int
    wait: bool | Until
    on_event: OnEvent | None
    progress: bool | None
    files: Mapping[str, str | Path | Mapping[str, Any]] | None


class SpecOptions(Options, total=False):
    """Options for a spec: files to upload.

    Attributes:
        weights: A safetensors file with the model's `state_dict`, or the name of pretrained weights.
        code: A folder of Python source, for a source with an `entry`; beside a program, the modules of its operators.
        program: A file of `torch.export.save`, which is the source and has the weights.
    """

    weights: str | Path | None
    code: str | Path | None
    program: str | Path | None


class ModelOptions(Options, total=False):
    """Options for a live model; the others are the spec's fields of the same name.

    Attributes:
        name: `team/name`.
        code: A folder of Python source: with `entry` it is published in place of the program, without it beside the
            program, whose operators or Triton kernels it registers.
        entry: What of the code builds the model: `module:function`.
    """

    name: Required[str]
    dynamic_shapes: Any
    code: str | Path | None
    entry: str
    entry_kwargs: Mapping[str, Any]
    requirements: Sequence[str]
    targets: Sequence[str | Mapping[str, Any]]
    outputs: Sequence[str]
    dtype: str
    export: Mapping[str, Any]
    compile: Mapping[str, Any]
    checks: Mapping[str, Any]
    limits: Mapping[str, Any]
    measure: Mapping[str, Any]


_DICTS = ("files", "labels", "entry_kwargs", "export", "compile", "checks", "limits", "measure")
_LISTS = ("derived_from", "requirements", "targets", "outputs")


def check_options(options: Mapping[str, Any], kind: type[SpecOptions | ModelOptions], what: str) -> None:
    """Check the options of a publication.

    Raises:
        InvalidInput: An option is unknown, missing or of the wrong type.
    """
    known = kind.__annotations__
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise InvalidInput(
                f"Unknown option {name!r} for {what}",
                where=name,
                hint=f"Did you mean {near[0]}?" if near else f"The options are {', '.join(known)}.",
            )
        _check_form(name, options[name])
    parse_until(options.get("wait"))
    if "name" in known and not isinstance(options.get("name"), str):
        raise InvalidInput("name is required", where="name", hint='For example: name="team/model".')


def _check_form(name: str, value: object) -> None:
    """Refuse options of the wrong type early, such as text in place of a list."""
    wrong_dict = name in _DICTS and not isinstance(value, Mapping | None)
    wrong_list = name in _LISTS and (isinstance(value, str) or not isinstance(value, Sequence | None))
    if wrong_dict or wrong_list:
        raise InvalidInput(
            f"{name} must be a {'dict' if wrong_dict else 'list'}, got {type(value).__name__}",
            where=name,
            hint="Write its fields by name, as in a spec."
            if wrong_dict
            else f"Write a single value as [{value!r:.80}].",
        )
