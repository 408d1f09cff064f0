"""Events that count once: what ``Stats(unique=Unique(...))`` does.

Beside the table lies another one, ``<table>_keys``, with a row for each event that was counted: the
hash of its key, the hash of its other values, and its event time. The transaction that adds sums to
the table adds these rows to it, so both are always of the same events.

Two events are compared if all columns of ``by`` are equal and their event times are at most
``within`` apart; without ``within``, however far apart. The first one counts.

=================================================== ============================================
a later event                                       what becomes of it
=================================================== ============================================
with equal values in all other columns, but for     is not counted; ``postgres_duplicate_rows``
``ignore`` and columns of the Kafka record
with another value in one of them                   is a dead letter, ``conflicting-key``;
                                                    ``postgres_conflicting_rows``
without a value in a column of ``by``               is a dead letter, ``missing-value``
of a time that is no longer remembered whole        is a dead letter, ``too-old-to-compare``;
                                                    ``postgres_too_old_rows``
=================================================== ============================================

**First** is the event that was committed first, by whichever pipeline. Within a batch it is the one
that was read first, as long as the pipeline has one source and no steps; otherwise any.

**What is remembered.** Keys of the last two ``within`` of event time, behind ``complete_until`` of
the pipeline; where that is not known, as behind steps, behind the partition that has come furthest,
less ``allowed_lateness``. So an event can be compared as long as it is at most ``within`` behind
that time. The row with the key 0 says since when all keys are there. Without ``within`` nothing is
forgotten.

**Exactness.** Commits to one table wait for each other (an advisory lock), and read the keys behind
it. A batch that is repeated, a checkpoint that is lost or reset and records that are sent again add
nothing. A table that has no rows has counted nothing, so its keys are forgotten: after a
``TRUNCATE`` or ``DELETE`` of all its rows, topics can be counted again from the start. Rows that
are deleted otherwise stay counted; delete their keys by ``event_time`` to count them again. A table
with rows whose keys were deleted is refused.

**How.** Tasks stage the sums of their rows as without ``unique``, and beside them the keys and the
rows themselves. The transaction compares keys. Where all are new it goes through; otherwise it is
rolled back, the sums of the tasks that have other rows are added up again from the staged rows
without these, and it is tried again.
"""
