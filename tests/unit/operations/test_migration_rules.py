"""Revisions after the previous release only expand the schema: what its code uses is dropped a release later."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

MIGRATIONS = Path(__file__).resolve().parents[3] / "migrations"
PREVIOUS = tomllib.loads((MIGRATIONS / "previous_release.toml").read_text("utf-8"))["revision"]
CONTRACTING = {
    "alter_column",
    "drop_column",
    "drop_table",
    "drop_table_comment",
    "rename_table",
    "create_check_constraint",
    "create_unique_constraint",
    "create_foreign_key",
}
"""What may break code that does not know the revision: it writes and reads the columns and values as they were."""
WORDS = ("DROP TABLE", "DROP COLUMN", "RENAME", "SET NOT NULL", "ALTER COLUMN", "ADD CONSTRAINT")
ACCEPTED = {
    "0030_people": "both are about new columns, which the previous release leaves empty: its sessions all have a token",
    "0037_rebuilds": "the new check of kinds takes one more kind than the old one",
    "0032_damage": "the new check of states takes one more state than the old one",
}
"""Revisions that contract what the previous release's code does not use any more, each with the reason."""


def new_revisions() -> list[Path]:
    return [path for path in sorted((MIGRATIONS / "versions").glob("*.py")) if path.name[:4] > PREVIOUS]


def contractions(source: str) -> list[str]:
    """What the upgrade of a revision takes away or narrows; its downgrade does by nature."""
    tree = ast.parse(source)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "downgrade":
            node.body = []
    created = {
        str(call.args[0].value)
        for call in ast.walk(tree)
        if _name(call) == "create_table" and isinstance(call.args[0], ast.Constant)  # type: ignore[attr-defined]
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            found += _of_call(node, created)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found += [word for word in WORDS if word in node.value.upper()]
    return found


def _of_call(node: ast.Call, created: set[str]) -> list[str]:
    name = _name(node)
    table = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
    if name in CONTRACTING:
        if name.startswith("create_") and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
            table = node.args[1].value
        widens = name == "alter_column" and {word.arg for word in node.keywords} <= {
            "server_default",
            "nullable",
        }
        if widens and "nullable=False" not in ast.unparse(node):
            return []
        return [] if table in created else [name]
    if name == "add_column" and table not in created:
        column = ast.unparse(node.args[1]) if len(node.args) > 1 else ""
        return ["add_column without a default"] if _is_required(column) else []
    return []


def _is_required(column: str) -> bool:
    return "nullable=False" in column and "server_default" not in column


def _name(node: ast.AST) -> str | None:
    return node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None


def test_no_new_revision_takes_away_what_the_previous_release_uses() -> None:
    found = {path.stem: contractions(path.read_text("utf-8")) for path in new_revisions()}
    assert {name: what for name, what in found.items() if what and name not in ACCEPTED} == {}
    assert set(ACCEPTED) <= set(found)  # an entry goes when its release is the previous one


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("op.drop_column('models', 'name')", ["drop_column"]),
        ("op.rename_table('models', 'nets')", ["rename_table"]),
        ("op.execute('ALTER TABLE models RENAME COLUMN name TO title')", ["RENAME"]),
        (
            "op.add_column('models', sa.Column('x', sa.Text(), nullable=False))",
            ["add_column without a default"],
        ),
        ("op.add_column('models', sa.Column('x', sa.Text(), nullable=False, server_default=''))", []),
        ("op.add_column('models', sa.Column('x', sa.Text()))", []),
        ("op.alter_column('models', 'x', nullable=True)", []),
        ("op.alter_column('models', 'x', nullable=False)", ["alter_column"]),
        ("op.create_unique_constraint('uq', 'models', ['x'])", ["create_unique_constraint"]),
        ("op.create_table('new'); op.create_unique_constraint('uq', 'new', ['x'])", []),
        ("op.create_table('new')\ndef downgrade():\n    op.drop_table('new')", []),
    ],
)
def test_contractions_are_recognised(statement: str, found: list[str]) -> None:
    assert contractions(statement) == found


def test_each_earlier_kind_is_found_where_it_was() -> None:
    """The rule is not blind: revisions from before the first release did contract."""
    old = [path for path in sorted((MIGRATIONS / "versions").glob("*.py")) if path.name[:4] <= PREVIOUS]
    assert any(contractions(path.read_text("utf-8")) for path in old)
