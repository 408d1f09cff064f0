"""Servers of PostgreSQL that a project names: ``Postgres("orders", server="eu")``.

    [sinks.postgres]
    url = "postgresql://app:${PASSWORD}@db/items"

    [sinks.postgres.eu]
    url = "postgresql://app:${EU_PASSWORD}@db-eu/items"

A sink that names none writes to the first one. A table and what is recorded of it are in one
database: positions are those of the table at that server, and the same table at another server is
another target.
"""
