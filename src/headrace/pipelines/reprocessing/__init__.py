"""Reprocessing: a pipeline reads the records of a time range again, beside its live run.

**Which records.** Those whose offsets lie, in each partition, from the first record with a Kafka
timestamp of at least ``start`` to before the first one with a timestamp of at least ``end``. It is
the time at which a record came, not the event time: an event that happened in the range and came
after it is not among them. Records that the sink has not taken yet, as its positions say, are left
to the live pipeline; so are those whose batches a RESTORE has taken back.

**Order.** None between rows. Ranges are divided until there are more tasks than partitions.

**What the sink makes of it.**

======================== ==========================================================================
``Lake``                 the rows of the records become what is written now: missing ones are
                         added, others are replaced, and those that are right stay as they are
``Lake``, ``unique``     rows whose keys the table lacks are added, as by the pipeline itself, and
                         nothing is removed
``Postgres``, upsert     a row goes in if it is not older than the one of its key (``newest_by``)
``Kafka``                the events are sent again, with the ids that they had
others                   refused
======================== ==========================================================================

In a lake, rows that have the columns ``_topic``, ``_partition`` and ``_offset`` are the ones of the
records exactly, and rows that the pipeline no longer makes are removed. Other rows are found by the
event id, in all files. Then a row replaces another one of its id, or is added if there is none, and
no row is removed without that. A part that would add rows without an id is not committed.

A record and its replay are one event. By place, records that were replayed are left out, since
their rows are at the place of the replay; in all other cases, replays are.

**Parts.** A range is done in parts of at most :data:`~.ranges.PART_OFFSETS` offsets. Each ends in
one commit, which records the number of the part beside the positions of the pipeline, and changes
none of these. A crash leaves whole parts, and the next call does all of them again: rows that are
right are found to be. Two calls at a time are refused on one machine; of two machines, one commits.

**Refused**, since the outcome would be another one:

============================================= =====================================================
what is refused                               why
============================================= =====================================================
a ``Join``, steps with state                  they depend on the records before the range
several sources                               they were read side by side
a compacted topic                             records of the range may be deleted
``late_data`` other than ``KEEP``             which events were late is not recorded
a table that other pipelines write, too       whose rows are whose is not recorded
a pipeline that has not run yet               its sink has taken nothing that could be read again
a table found by place, with rows of an       they have the same offsets
earlier topic of the name
a topic that is deleted and created again     its offsets are those of other records
while it is reprocessed
============================================= =====================================================

These raise :class:`~headrace.errors.ReprocessRefusedError`. A part that would have to remove rows
of a table with ``delta.appendOnly`` or ``delta.enableChangeDataFeed`` is not committed
(:class:`~headrace.errors.SinkError`); parts before it stay. Records that retention has removed are
refused by :class:`~headrace.errors.RangeExpiredError`, unless that is accepted.

**Bad input.** A record that is rejected again has its dead letter already, and gets no second one.
A row that the sink rejects after steps belongs to no record, and gets another one. An event whose
time was too far ahead when it came, and no longer is, becomes a row.

**The ledger** has an entry for each part: the offsets, and by window what was added and removed.
Offsets that were not read before are in parts of their own, whose rows the table must have then.
"""
