"""Transactions of batches that are held in the middle, so that a test can kill them there."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import psycopg
from tests.integration.postgres_server import PostgresServer

# A commit is held where a test wants it: by locks of the test, and by a standby that is not there.
# All but the transactions of batches end without waiting for a standby.
HOLDING = """
CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'on', true);
    PERFORM pg_advisory_xact_lock_shared(42);
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER hold AFTER INSERT OR UPDATE ON headrace.positions
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION hold();
DO $$ BEGIN
    EXECUTE format('ALTER DATABASE %I SET synchronous_commit = ''local''', current_database());
END $$;
"""
HELD = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'headrace' AND {where} LIMIT 1
"""
# Where a transaction of a batch is when it dies: how it is held there, and how that is seen. Its
# rows are in the table already; after the last one of them, the commit is durable and only the
# answer is lost.
MOMENTS = {
    "before its positions": (
        "LOCK TABLE headrace.positions IN EXCLUSIVE MODE",
        "wait_event_type = 'Lock' AND query LIKE '%INSERT INTO headrace.positions%'",
    ),
    "at its commit": (
        "SELECT pg_advisory_xact_lock(42)",
        "wait_event_type = 'Lock' AND query = 'COMMIT'",
    ),
    "behind its commit": ("", "wait_event = 'SyncRep'"),
}


def make_holdable(url: str) -> None:
    """Prepares a database in which headrace has its positions."""
    with psycopg.connect(url) as connection:
        connection.execute(HOLDING)


@contextmanager
def held(server: PostgresServer, url: str, moment: str) -> Iterator[Callable[[], list[int]]]:
    """Holds the next transaction at a moment; gives what finds the processes held there."""
    lock, where = MOMENTS[moment]
    holder, viewer = psycopg.connect(url), psycopg.connect(url, autocommit=True)
    with closing(holder), closing(viewer):
        if lock:
            holder.execute(lock)
        else:
            viewer.execute("ALTER SYSTEM SET synchronous_standby_names = 'absent'")
            viewer.execute("SELECT pg_reload_conf()")
        try:
            yield lambda: [pid for (pid,) in viewer.execute(HELD.format(where=where)).fetchall()]
        finally:
            (server.folder / "data" / "postgresql.auto.conf").write_text("")
            if server.running:
                os.kill(server.pid, signal.SIGHUP)  # to read its settings again
