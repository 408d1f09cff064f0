"""The ledger: sums that show whether every event of a pipeline is accounted for.

**What is counted.** For each pipeline, hop, partition and window of event time: how many events,
the bytes of their record values, and the sum modulo 2^64 of a hash of their ids, by fate. Sums of
partitions, batches and pipelines add up. Events without an event time, and records that could not
be decoded, have a row of their own: its window is None.

========= ==================================== ===============================================
hop       what it is                           what must hold
========= ==================================== ===============================================
offsets   the ranges of the batches            they follow one another: a gap is a range that
                                               was never read, an overlap one read twice
read      read tasks: decode, checks, lateness in = out + late + dropped + dead + tombstone
join      events through a join                out of ``read`` = the fates of
                                               :mod:`headrace.pipelines.join.tally`
steps     rows through steps of Spark          out of ``read``, or ``join`` = what steps say
                                               that they dropped + rows behind the watermark +
                                               in of ``sink``
sink      rows to the sink                     in = out + dead + deduplicated; without
                                               steps, in = out of ``read``, or ``join``
table     a recount of the rows in the sink    rows = out of ``sink``
side      a recount of the rows in a side      rows = late of ``read``, or unmatched of
table     table                                ``join``
========= ==================================== ===============================================

Rows that the commit of a sink or a side table drops or rejects get another fate in the entry,
before the commit is tried again. A side table's commit is not repeated after a crash there, so
then the repeated batch keeps what its entry was corrected by.

With a recount, the dead letters in their topics are compared, too: as many as ``read``, ``join``
and ``sink`` count, by partition.

**Joins.** Later events of a join wait across batches. What begins to wait is added to the fate
*waiting*, and what comes out is taken off, so the sums over all batches say what waits. An entry
also says what waits in the state before its first batch and after its last one, by partition: what
was before, plus the sums, must be what is after. A window in which events wait is not balanced yet.

**Steps.** A row carries its lineage, the window, bytes and hash of its event, in a column of its
own (:mod:`headrace.pipelines.ledger.counting.row_lineage`), which is taken off at the sink; so a
row is counted by the event that it came from, whatever became of its fields. Steps do not see that
column: it is put into Spark's plan of what they return
(:mod:`headrace.pipelines.steps.carried_lineage`), as far as that plan is made of projections,
filters and the like. A step that drops rows and counts them, such as ``filter_rows``, leaves the
sums by fate in the run's staging folder (:mod:`headrace.pipelines.ledger.counting.step_ledger`),
and the driver puts them into the entry of the same batch. What a step drops and does not count is
missing at ``steps``. Rows that Spark drops behind its watermark are distinguished from duplicates
by the watermark in Spark's log of offsets, which the driver gives to the tasks of the batch. After
a step whose rows can't be distinguished, such as an aggregation, the fate of the events is
*unknown*, from there on and for every window that it has got events of.

**When.** Read tasks make the sums while they hold the records, and hand them to the driver with
their reports. The driver writes the entry of a batch to the lake before the sink's commit, and an
entry counts only if the sink holds its batch:

- A crash before the commit leaves an entry that does not count. The batch is repeated and its
  entry written again, under the name that it has: checkpoint and batch id.
- A batch that the sink holds already is not written again, and its entry stays.
- A lost or reset checkpoint begins a new number, under which the entries are others. What of the
  old one was never committed never counts: the first commit of the new checkpoint fences it.
- A sink without positions (``Kafka``) is at least once: an entry counts when Spark has noted the
  end of its batch. A repeated batch counts once, although its rows may be in the sink twice.

Where the entry can't be written, the batch fails before its commit and is repeated: no row is lost,
and none is in the sink without an entry.

**Windows** are ``[ledger] window_seconds`` long and begin at multiples of it since 1970, in UTC.
"""
