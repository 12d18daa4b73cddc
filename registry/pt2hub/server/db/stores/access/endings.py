"""Ends tokens and people's access as the audit log says, where the rows are from before, as after a restored backup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_BY = "jsonb_build_object('kind', ended.principal_kind, 'name', ended.principal, 'id', ended.principal_id)"
# An id belongs to another token, or person, if that is younger than the entry: the database was lost in between.
_STATEMENTS = tuple(
    map(
        text,
        (
            f"""
            UPDATE api_tokens SET revoked_at = ended.at, revoked_by = {_BY} FROM audit_log AS ended
            WHERE ended.action = 'token.revoke' AND api_tokens.id = CAST(ended.change ->> 'id' AS bigint)
            AND api_tokens.name = ended.resource AND api_tokens.created_at < ended.at AND api_tokens.revoked_at IS NULL
            RETURNING 1""",  # noqa: S608
            """
            UPDATE api_tokens SET expires_at = ended.until FROM (
                SELECT CAST(change ->> 'before' AS bigint) AS id, resource, at,
                    at + make_interval(secs => CAST(change ->> 'overlap_seconds' AS double precision)) AS until
                FROM audit_log WHERE action = 'token.rotate'
            ) AS ended
            WHERE api_tokens.id = ended.id AND api_tokens.name = ended.resource AND api_tokens.created_at < ended.at
            AND api_tokens.revoked_at IS NULL AND (api_tokens.expires_at IS NULL OR api_tokens.expires_at > ended.until)
            RETURNING 1""",
            f"""
            UPDATE api_tokens SET revoked_at = ended.at, revoked_by = {_BY} FROM audit_log AS ended
            WHERE ended.action = 'person.end' AND ended.change -> 'tokens' @> to_jsonb(api_tokens.id)
            AND api_tokens.person_id = CAST(ended.change ->> 'id' AS bigint)
            AND api_tokens.created_at < ended.at AND api_tokens.revoked_at IS NULL
            RETURNING 1""",  # noqa: S608
            """
            DELETE FROM web_sessions USING people, audit_log AS ended
            WHERE web_sessions.person_id = people.id AND ended.action = 'person.end'
            AND people.id = CAST(ended.change ->> 'id' AS bigint) AND people.name = ended.resource
            AND web_sessions.created_at < ended.at
            RETURNING 1""",
            """
            UPDATE people SET groups = '{}' FROM audit_log AS ended
            WHERE ended.action = 'person.end' AND people.id = CAST(ended.change ->> 'id' AS bigint)
            AND people.name = ended.resource AND people.signed_in_at < ended.at AND people.groups <> '{}'
            RETURNING 1""",
        ),
    )
)


class EndingStore:
    """What the audit log says about the end of access."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def apply(self) -> int:
        """End what ended, unless it has; return how many rows were changed."""
        return sum(len(self._session.execute(statement).all()) for statement in _STATEMENTS)
