"""Page that lists the versions of all models by conditions."""

from __future__ import annotations

import shlex
from collections import Counter
from http import HTTPStatus
from typing import TYPE_CHECKING

from flask import request, url_for
from pydantic import BaseModel, ConfigDict

from pt2hub.domain.builds import Readiness
from pt2hub.errors import InvalidInput, UsageError
from pt2hub.rendering.quantities import format_count
from pt2hub.server.api.context import container
from pt2hub.server.api.problems import status_of
from pt2hub.server.pages.blueprint import routes
from pt2hub.server.pages.choices import check_choice
from pt2hub.server.pages.numbers import query_number
from pt2hub.server.pages.templates import page
from pt2hub.wire.responses import FoundVersions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from flask import Response

_PER_PAGE = 50
_MORE = "More conditions"
"""Label of the field for conditions without a field of their own."""
_MAX_QUERY_CHARS = 2000
_MAX_CURSOR = 2**63 - 1


class VersionQuery(BaseModel):
    """Conditions in the address: a form field for each common one, and a line of text for all others.

    Attributes:
        q: Conditions separated by spaces; quotes keep spaces.
        team: A team, or a model.
    """

    model_config = ConfigDict(frozen=True)

    q: str = ""
    team: str = ""
    alias: str = ""
    state: str = ""
    target: str = ""
    label: str = ""
    publisher: str = ""
    sort: str = ""

    @classmethod
    def read(cls) -> VersionQuery:
        """Read the current request's query; `where` is accepted as in the API."""
        given = {name: request.args.get(name, "").strip()[:_MAX_QUERY_CHARS] for name in cls.model_fields}
        where = shlex.join(request.args.getlist("where"))
        return cls.model_validate(given | ({"q": where} if where else {}))

    @property
    def chosen(self) -> dict[str, str]:
        """The query parameters for the same conditions, without the order."""
        return {name: value for name, value in self.model_dump(exclude={"sort"}).items() if value}

    @property
    def kept(self) -> dict[str, str]:
        """The query parameters for the same list."""
        return self.chosen | ({"sort": self.sort} if self.sort else {})

    @property
    def oldest_first(self) -> bool:
        """Whether the oldest version comes first.

        Raises:
            InvalidInput: The order is unknown.
        """
        check_choice(self.sort, ("", "newest", "oldest"), "sort")
        return self.sort == "oldest"

    def conditions(self) -> list[str]:
        """Return the conditions as the API takes them.

        Raises:
            InvalidInput: A quote in the text is not closed.
        """
        return [*self._fields(), *split_conditions(self.q)]

    def explain(self, error: UsageError) -> UsageError:
        """Return an error about a condition with the field of the form that it is in, and how conditions are written."""
        if error.where != "where":
            return error
        fields = [label for label, value in (("Label", self.label), (_MORE, self.q)) if value]
        form = "A condition is written KEY=VALUE, such as owner=search. " if self.words else ""
        return error.replace(where=" or ".join(fields) or None, hint=f"{form}{error.hint or ''}")

    def order_labels(self, labels: Mapping[str, str]) -> list[tuple[str, str]]:
        """Return labels with those first that were searched for: a row has room for few."""
        try:
            keys = {condition.partition("=")[0] for condition in self.conditions()}
        except InvalidInput:
            keys = set()
        return sorted(labels.items(), key=lambda item: item[0] not in keys)

    @property
    def words(self) -> str:
        """The typed words that are not of the form KEY=VALUE: they may be meant for the search."""
        try:
            return " ".join(word for word in split_conditions(self.q) if "=" not in word)
        except InvalidInput:
            return ""

    def _fields(self) -> Iterator[str]:
        if self.team:
            yield f"model={self.team if '/' in self.team else f'{self.team}/'}"
        for name in ("alias", "state", "target", "publisher"):
            if value := getattr(self, name):
                yield f"{name}={value}"
        if self.label:
            yield self.label


@routes.get("/versions")
def versions() -> Response:
    """List the versions that meet all conditions, newest first unless `sort=oldest`."""
    query = VersionQuery.read()
    after = query_number("after", 1, _MAX_CURSOR, what="cursor", hint="Use the link to the next page.")
    found, error = FoundVersions(()), None
    try:
        found = container().catalog.search(
            query.conditions(), after=after, limit=_PER_PAGE, oldest_first=query.oldest_first
        )
    except UsageError as caught:
        error = query.explain(caught)
    return page(
        "versions.html",
        section="versions",
        status=status_of(type(error)) if error else HTTPStatus.OK,
        error=error,
        query=query,
        states=[state.value for state in Readiness],
        choices=container().overview.choices(),
        answer=compose_answer(found, is_filtered=bool(query.chosen), is_first=after is None),
        found=found,
        after=after,
        next_href=_next_href(query, found),
    )


def _next_href(query: VersionQuery, found: FoundVersions) -> str | None:
    given: dict[str, Any] = {**query.kept, "after": found.next}
    return url_for("pages.versions", **given) if found.next else None


def compose_answer(found: FoundVersions, *, is_filtered: bool, is_first: bool = True) -> str:
    """Return how many versions are shown, and their states: `12 versions match: 10 ready, 2 failed`."""
    count = len(found.versions)
    if not count:
        return "No version matches." if is_filtered else "No versions yet."
    states = Counter(version.readiness for version in found.versions)
    parts = [f"{states[state]} {state}" for state in Readiness if states[state]]
    if found.next or not is_first:
        which = "first" if is_first else "next"
        head = f"The {which} {format_count(count, 'version')}" + (" that match" if is_filtered else "")
    else:
        head = format_count(count, "version") + (f" match{'es' if count == 1 else ''}" if is_filtered else "")
    return f"{head}: {', '.join(parts)}."


def split_conditions(typed: str) -> list[str]:
    """Return conditions from a line of text, where spaces separate them and quotes keep spaces.

    Raises:
        InvalidInput: A quote is not closed.
    """
    try:
        return shlex.split(typed)
    except ValueError as exc:
        raise InvalidInput(
            "Invalid conditions: a quote is not closed", where="q", hint='For example: owner="search team"'
        ) from exc
