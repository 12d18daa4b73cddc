"""What `publish` takes by name, judged before torch is imported or a file is read."""

from __future__ import annotations

from typing import Any

import pytest

from pt2hub.client.publishing.options import ModelOptions, SpecOptions, check_options
from pt2hub.errors import InvalidInput


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("requirements", "timm", "must be a list, got str"),
        ("targets", "auto", "must be a list, got str"),
        ("outputs", 3, "must be a list, got int"),
        ("export", "strict", "must be a dict, got str"),
        ("entry_kwargs", [1], "must be a dict, got list"),
        ("wiat", True, "Unknown option 'wiat'"),
    ],
)
def test_an_option_of_another_form_is_refused_by_its_name(name: str, value: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as caught:
        check_options({"name": "team/model", name: value}, ModelOptions, "a model")
    assert caught.value.where == name
    assert caught.value.hint


def test_a_model_needs_a_name_and_a_spec_has_its_own() -> None:
    check_options({"name": "team/model", "targets": ("auto",), "export": None}, ModelOptions, "a model")
    with pytest.raises(InvalidInput, match="name is required"):
        check_options({}, ModelOptions, "a model")
    with pytest.raises(InvalidInput, match="Unknown option 'name'"):
        check_options({"name": "team/model"}, SpecOptions, "a spec")
