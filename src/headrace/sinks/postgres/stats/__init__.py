"""Sink ``Stats``: event-time counts, sums and distinct counts in a table of PostgreSQL.

    Stats(
        "ad_stats",
        by=("campaign", "policy"),
        every=timedelta(minutes=1),
        measures={"clicks": Count(), "spend": Sum("price"), "users": Distinct("user_id")},
    )

====================== ======================================== ==================================
column                 what                                     type, where the sink makes it
====================== ======================================== ==================================
``window_start``       start of the window, aligned to 1970     timestamptz
                       in UTC; part of the key
those of ``by``        values of the group; part of the key     as in the rows
a :class:`Count`       number of rows                           bigint
a :class:`Sum`         sum of a column                          numeric; of a double: double
                                                                precision
a :class:`Distinct`    estimate of how many values it has       bigint
``<name>_sketch``      the sketch of a Distinct                 bytea
====================== ======================================== ==================================

Guarantees:
- Exactly once. Tasks send sums of their rows by group (``COPY`` into staging tables); one
  transaction adds them to the table, merges sketches, and records positions. A batch that is
  repeated, or a checkpoint that is lost, adds nothing twice. A checkpoint that is reset to
  ``earliest`` counts everything again.
- In no order. A late event is added to its window, however old, unless ``late_data`` of the
  pipeline sends it elsewhere. No state is kept but the table.
- Several pipelines may add to one table, if they declare it in the same way. ``headrace.tables``
  has what they declare, and another ``every``, ``by`` or measure is refused. Transactions lock
  rows in the order of their keys, so they wait for each other without a deadlock.

========================== =======================================================================
a row with                 gets
========================== =======================================================================
no event time              a dead letter, ``missing-value``
null in a column of ``by`` a group of its own, if the unique index is ``NULLS NOT DISTINCT``
                           (PostgreSQL 15; tables that the sink makes there); else a dead letter,
                           ``missing-value``
null in a Sum or Distinct  counted by the others: it adds nothing
NaN or infinity in a Sum   a dead letter, ``wrong-value``: it would be the sum for ever
a value that its column    a dead letter with PostgreSQL's message, as every row of its group
does not take              among the some ten thousand rows that a task writes at once
========================== =======================================================================

A sum that leaves the range of its column is found by the transaction. The dead letter is then the
sum of the batch's rows of that group, with its window, not the rows. Integers and decimals are
added exactly; doubles as doubles.

**Distinct counts** are estimates by HyperLogLog (:mod:`headrace.sinks.postgres.sketches`). A commit
reads and writes the sketches of the groups in its batch, at most ``2**lg_k / 2 + 40`` bytes each
(2 KiB for 12), merges them in the driver, some 50 microseconds each, and holds them in memory
meanwhile. A batch writes each row of such a table twice.

**Complete until.** Each commit writes up to which event time the table has all that was in the
topic when the batch was planned: to ``headrace.completeness``, with one row for each table and
pipeline, from ``complete_until`` of the transaction's metadata. ``-infinity`` means that it is not
known: before the first batch, and behind steps and joins, which may hold rows back. A window is
complete if its end is not after the least of these. The time goes back where rows are counted from
another start, by the first batch after a reset; late events correct windows before it. A
``TRUNCATE`` undoes it for all pipelines, each until it has been reset: a row beside its own,
``<pipeline> before the table was emptied``, holds the least one. A pipeline that no longer writes
to the table holds it back until its rows are deleted.
"""
