"""A table without duplicates: what ``Lake(unique=Unique(...))`` does.

**What a duplicate is.** Two rows have one key if all columns of ``by`` are equal, and are near if
their event times are at most ``within`` apart. ``within`` is rounded up to whole slices of event
time, an eighth of it and at least an hour, so rows that are further apart by up to one slice may be
near as well. The first row of a key is kept. What becomes of a later one that is near:

================================================ ===============================================
the later row                                    what becomes of it
================================================ ===============================================
is equal in all other columns, but for           is dropped, and counted in
``ignore`` and columns of the Kafka record       ``lake_duplicate_rows``
differs in one of them                           is a dead letter, ``conflicting-key``, and
                                                 counted in ``lake_conflicting_rows``
has no value in a column of ``by``, or no event  is kept, and counted in
time                                             ``lake_unchecked_rows``
================================================ ===============================================

**First** is the row that was committed first, by whichever pipeline that declares the table unique.
Within a batch it is the row that was read first, as long as the pipeline has one source and no
steps; otherwise any. A dead letter is not first: what is equal to it is a dead letter, too.

**Where it is decided.** Tasks write their files as ever, and hand the driver four numbers for each
row: the hash of its key, the hash of its other columns, its place among the rows of its task, and
its slice of event time. Just before the commit, the driver looks the rows up among those of the
table, rewrites files that have duplicates without them, and commits. The commit goes in
only after the version of the table that was looked at: where another writer was faster, its rows
are looked up as well. So

- duplicates are found within a task, between tasks, between batches and between pipelines, whatever
  the topic is partitioned by;
- a crash before the commit leaves nothing but files that no version holds, and the batch is
  decided again. A crash after it repeats nothing: the table knows the batch by its positions;
- there is no state to lose or to restore. The table itself is the state, and what the driver holds
  is recreated from it. A checkpoint that is reset to the start reads everything again, and adds
  no row; a late event is compared with the rows of its own time, however old.

**What it costs.** The driver keeps 16 bytes for each row of the table in the 64 slices that it has
used last: eight times ``within``, and 64 hours at least; more slices only if a single batch needs
more. Slices of many rows are in files that have no name, in the folder of temporary files, and that
the system frees with the process; up to 262,144 rows of a slice are in memory. A row of the batch
takes at least 24 bytes of memory until its commit. The driver reads the rows of a slice from the
table when a row near to it comes for the first time in a run, or after it has forgotten the slice
for others, and of all slices when another engine has deleted rows.

**Equal** is decided by hashes of 64 bits each (:mod:`headrace.events.event_hash`). Null and the
empty text count as equal. To be dropped wrongly, a row must agree with another in both hashes, by
chance once in 2^128 pairs. A row whose key alone has the hash of another key becomes a dead letter:
once in 2^64 pairs, so of a billion keys within ``within``, one new key in 18 billion.
"""
