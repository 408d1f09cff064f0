"""Servers of PostgreSQL that a project names, and tables whose rows are at several of them.

    [sinks.postgres]
    url = "postgresql://app:${PASSWORD}@db/items"

    [sinks.postgres.eu]
    url = "postgresql://app:${EU_PASSWORD}@db-eu/items"

    Postgres("orders", server="eu")
    Postgres("orders", server=ByServer("account", {"acme": "eu"}, otherwise="us"))

A sink that names none writes to the first one. A table and what is recorded of it are in one
database: positions are those of the table at that server, and the same table at another server is
another target. ``ByServer`` gives each row a server; how a batch is exactly once at all of them is
in :mod:`headrace.sinks.postgres.servers.standing`.
"""
