"""Messages for pydantic's errors: what a field allows is said in words."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import Field, TypeAdapter, ValidationError

from pt2hub.domain.names import ALIAS_PATTERN
from pt2hub.domain.publishing.spec_base import whole
from pt2hub.server.api.request_shapes import DigestText, IdText
from pt2hub.server.services.validation_messages import format_limits, to_message


@pytest.mark.parametrize(
    ("field", "allowed"),
    [
        (DigestText, "sha256: and 64 lowercase hex digits"),
        (IdText, "letters, digits and -"),
        (
            Annotated[str, Field(pattern=whole(ALIAS_PATTERN))],
            "a letter or _, then letters, digits and . _ -, at most 128 characters",
        ),
        (Annotated[str, Field(pattern=r"^\d+\.\d+$")], r"matching ^\d+\.\d+$"),
    ],
)
def test_what_a_pattern_allows_is_said(field: Any, allowed: str) -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(field).validate_python("!zz!")
    (item,) = caught.value.errors()
    assert (to_message(item), format_limits(item)) == ("invalid format", allowed)
