"""The PostgreSQL of the tests: a real one, that survives its own crash."""

import psycopg
import pytest
from tests.integration.postgres_server import PostgresServer


@pytest.mark.parametrize("crash", [PostgresServer.kill, PostgresServer.kill_processes])
def test_what_is_committed_survives_a_crash_of_the_server(postgres, crash):
    url = postgres.create_database(crash.__name__)
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept (n int)")
        connection.execute("INSERT INTO kept VALUES (1)")
    crash(postgres)
    assert not postgres.running
    postgres.start()
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT n FROM kept").fetchall() == [(1,)]
