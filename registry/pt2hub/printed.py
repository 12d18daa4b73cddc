"""Values that print well at a Python prompt and in a notebook.

What they say is rendered by the layer above, `pt2hub.rendering`, and imported when somebody looks: loading a model in a
fresh process is a matter of milliseconds, and prints nothing.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sheet:
    """What a value says of itself.

    Attributes:
        title: One line that says what it is.
        rows: A small table below it.
        notes: What stands below the table, such as what to do next.
    """

    title: str
    rows: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()


class Printed:
    """A value that prints well: `repr` is one line, `str` a few, a notebook shows a table."""

    __slots__ = ()

    def _sheet(self) -> Sheet:
        """Describe the value; the API's shapes leave it to the renderer."""
        from pt2hub.rendering.dispatch import sheet_of

        return sheet_of(self)

    def __str__(self) -> str:
        from pt2hub.rendering.sheets import as_text

        return as_text(self._sheet())

    def __repr__(self) -> str:
        from pt2hub.rendering.sheets import as_line

        return f"<{type(self).__name__.removesuffix('View')} {as_line(self._sheet())}>"

    def _repr_html_(self) -> str:
        from pt2hub.rendering.sheets import as_html

        return as_html(self._sheet())
