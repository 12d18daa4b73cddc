from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from sqlalchemy import Integer, Text, bindparam, func, literal_column, select, text

from pt2hub.errors import BadConfiguration, DatabaseUnavailable, InternalError
from pt2hub.server.db import engine as engines

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def sessions(database_url: str) -> Iterator[engines.Sessions]:
    engine = engines.create(database_url)
    yield engines.Sessions(engine)
    engine.dispose()


def test_a_database_that_is_not_there_is_unavailable() -> None:
    engine = engines.create("postgresql://nobody@127.0.0.1:1/nothing?connect_timeout=2")
    with pytest.raises(DatabaseUnavailable), engines.Sessions(engine).begin() as session:
        session.execute(text("SELECT 1"))
    engine.dispose()


def test_a_block_commits_at_its_end_and_rolls_back_when_it_raises(sessions: engines.Sessions) -> None:
    with sessions.begin() as session:
        session.execute(text("CREATE TABLE things (id int)"))

    def insert_and_fail() -> None:
        with sessions.begin() as session:
            session.execute(text("INSERT INTO things VALUES (1)"))
            raise KeyError

    with pytest.raises(KeyError):
        insert_and_fail()
    with sessions.begin() as session:
        assert session.execute(text("SELECT count(*) FROM things")).scalar_one() == 0


def test_a_wrong_statement_is_ours_to_answer_for_and_its_parameters_stay_out_of_the_message(
    sessions: engines.Sessions,
) -> None:
    with pytest.raises(InternalError) as caught, sessions.begin() as session:
        session.execute(text("INSERT INTO absent VALUES (:it)"), {"it": "secret"})
    assert "absent" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_statement_that_takes_too_long_is_cut_off(sessions: engines.Sessions) -> None:
    with pytest.raises(DatabaseUnavailable, match="statement timeout"), sessions.begin() as session:
        session.execute(text("SET LOCAL statement_timeout = '20ms'; SELECT pg_sleep(5)"))


def test_every_connection_has_time_outs_and_speaks_utc(sessions: engines.Sessions) -> None:
    names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "timezone")
    with sessions.begin() as session:
        settings = {name: session.execute(text(f"SHOW {name}")).scalar_one() for name in names}
    assert settings == dict(zip(names, ("30s", "10s", "1min", "UTC"), strict=True))


def test_a_connection_cut_while_idle_is_replaced_unnoticed(
    sessions: engines.Sessions, database_url: str
) -> None:
    with sessions.begin() as session:
        pid = session.execute(text("SELECT pg_backend_pid()")).scalar_one()
    with psycopg.connect(database_url) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    with sessions.begin() as session:
        assert session.execute(text("SELECT pg_backend_pid()")).scalar_one() != pid


def test_a_reader_asks_outside_of_transactions_and_leaves_none_behind(sessions: engines.Sessions) -> None:
    asked = engines.Prepared.of(select(func.pg_backend_pid(), func.now() == func.statement_timestamp()))
    ((pid, alone),) = sessions.reader.rows(asked)
    assert alone
    with sessions.begin() as session:  # the same connection, with transactions again
        assert session.execute(text("SELECT pg_backend_pid()")).scalar_one() == pid
        session.execute(text("CREATE TABLE things (id int)"))
        session.rollback()
    with sessions.begin() as session:
        assert session.execute(text("SELECT to_regclass('things')")).scalar_one() is None


def test_a_reader_fills_in_parameters_and_keeps_constants(sessions: engines.Sessions) -> None:
    statement = engines.Prepared.of(select(bindparam("given", type_=Integer) + 5))
    assert [sessions.reader.rows(statement, given=number) for number in range(8)] == [
        [(number + 5,)] for number in range(8)
    ]


def test_a_reader_that_fails_leaves_no_connection_without_transactions(sessions: engines.Sessions) -> None:
    statement = engines.Prepared.of(select(bindparam("given", type_=Text)))
    with pytest.raises(UnicodeEncodeError):  # before anything is sent
        sessions.reader.rows(statement, given="\ud800")
    with sessions.begin() as session:
        session.execute(text("CREATE TABLE things (id int)"))
        session.rollback()
    with sessions.begin() as session:
        assert session.execute(text("SELECT to_regclass('things')")).scalar_one() is None


def test_a_readers_connection_that_was_cut_is_replaced_and_errors_are_ours(
    sessions: engines.Sessions, database_url: str
) -> None:
    pid = engines.Prepared.of(select(func.pg_backend_pid()))
    ((first,),) = sessions.reader.rows(pid)
    with psycopg.connect(database_url) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [first])
    ((second,),) = sessions.reader.rows(pid)
    assert second != first
    with pytest.raises(InternalError, match="division by zero"):
        sessions.reader.rows(engines.Prepared.of(select(literal_column("1/0"))))
    ending = engines.Prepared.of(select(func.pg_terminate_backend(func.pg_backend_pid())))
    with pytest.raises(DatabaseUnavailable):
        sessions.reader.rows(ending)
    assert sessions.reader.rows(pid)


def test_an_address_that_cannot_be_read_is_a_wrong_setting() -> None:
    with pytest.raises(BadConfiguration) as caught:
        engines.create("postgresql://host:port/x?nonsense=1")
    assert caught.value.where == "PT2HUB_DATABASE_URL"


def test_settings_of_the_address_win_over_the_defaults() -> None:
    parsed = psycopg.conninfo.conninfo_to_dict(
        engines.conninfo("postgresql+psycopg://me@db/x?connect_timeout=3")
    )
    assert (parsed["user"], parsed["host"], parsed["connect_timeout"]) == ("me", "db", "3")
    assert parsed["keepalives"] == "1"
    assert int(parsed["tcp_user_timeout"]) <= 30_000  # recovery from a vanished host is due by then
