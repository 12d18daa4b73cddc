"""URL rules of the application."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from werkzeug.routing import Rule

if TYPE_CHECKING:
    from collections.abc import Callable


class LazyRule(Rule):
    """A URL rule that compiles the function that builds its URLs on first use.

    Most rules only match requests, and compiling the functions of all takes half of an application's creation.
    """

    def _compile_builder(self, append_unknown: bool = True) -> Callable[..., tuple[str, str]]:
        compile_now = functools.cache(super()._compile_builder)

        def build(rule: Rule, /, **values: Any) -> tuple[str, str]:
            return compile_now(append_unknown)(rule, **values)

        return build
