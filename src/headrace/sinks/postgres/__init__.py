"""Sink ``postgres``: a table of PostgreSQL.

    Postgres("impressions")                                      # append
    Postgres("sales", unique=Unique(by=["sale_id"]))                  # append, each row once
    Postgres("accounts", mode=WriteMode.UPSERT, key=("id",))          # the newest row of each key
    Postgres("clicks_per_hour", mode=WriteMode.ADD, key=("hour",))    # counters

The table exists already; its columns have the names of the rows' columns, and columns that the rows
do not have get their defaults. Its address is in headrace.toml::

    [sinks.postgres]
    url = "postgresql://app:${PASSWORD}@db/items"

Guarantees:
- Exactly once. Tasks copy their rows into staging tables (``COPY``); one transaction of the driver
  moves them into the table and records the offsets that the batch ends at, in
  ``headrace.positions``. It commits only if the positions are those that the batch starts at:
  of two drivers that try at the same moment, one commits.
- Readers see the rows of a batch all at once, or none.
- A row that the table does not take becomes a dead letter, with PostgreSQL's own message; the
  others go in. Types, CHECK and NOT NULL are looked at in the task; unique and foreign keys,
  triggers, indexes and sums by the transaction, which then is rolled back and repeated without
  those rows (:mod:`headrace.sinks.postgres.rows.isolation`).
- ``UPSERT``: of several rows of one key the newest one wins by ``newest_by``. Without it, which
  only one topic that is partitioned by the key allows, the last one wins. A row that is older by
  ``newest_by`` than the one in the table is left out; one that is as new fills in what is null
  there. If it has other values, it is a dead letter, ``conflicting-key``, but for a reprocessing,
  whose rows replace those that are.
- With ``on_null=OnNull.DELETE``, a record without a value deletes the row of its key, in the same
  transaction. Staging tables lack the table's CHECK and NOT NULL then: rows that break them are
  found by the transaction, unless a later row of their key takes their place.
- ``ADD``: every column that is not in the key is a number, and is added to the table's. Null adds
  nothing.
- ``unique``, of append: the INSERT leaves out rows whose key the table has, as its unique index
  decides. Then the transaction is rolled back, rows with equal values are dropped as duplicates,
  others are dead letters, ``conflicting-key``, and it is repeated without them
  (:mod:`headrace.sinks.postgres.rows.unique_rows`).
- No value is changed: one that its column would round or cut becomes a dead letter, and
  columns whose type would change most values are refused by the start.
- A table is known by what its name resolves to, and its rows have one meaning. The start that takes
  it first records that in ``headrace.tables``; one with another declaration is refused.
- A table that was recreated since a pipeline wrote to it is refused: its rows are lost.

With ``server=ByServer(...)`` rows are at several servers, each in a transaction of its own
(:mod:`headrace.sinks.postgres.servers`).

What it does not do: make tables, or keep an order between rows that are appended. A
task or driver that dies leaves staging tables in the schema ``headrace``; the pipeline's next start
drops them. The role needs ``CREATE`` on the database where that schema is not there yet.

The SQL is in the modules of what it is about, here in the order of a batch:

- ``recorded_table``: the names of the table, and what its rows mean;
- ``target``: the table, and whether it takes the rows; ``column_types``: what would change a value;
- ``staging``: staging tables; ``row_by_row`` fills one where ``COPY`` fails;
- ``insert``: from staging tables into the table, ``sketches`` with distinct counts;
- ``isolation``: which rows that INSERT fails for; ``unique_rows``: which it leaves out;
- ``positions``: where the batch ends.
"""
