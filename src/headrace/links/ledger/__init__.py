"""The ledger of links: whether what one topic holds is in the topic that a link writes.

The ends are those of a mirror's topic, of a merger, or of one target of a dispatcher. They are
topics that hold every record, so that both are counted, and nothing is kept beside them. Of a
link's own state, only the committed positions are used.

**What is counted.** Of each partition and window of record time: how many records, the bytes of
their values, and the sum modulo 2^64 of a hash of key, value and time, by fate. The time is that
of the record at the source; a dispatcher keeps it in the header ``headrace-timestamp``. Spark
counts, with its own Kafka source and its own expressions, on as many cores as it has.

**What must hold.** Records of the source that the position says are done = those at the target +
those in a merger's topic of late records. What a record's fate is at the source:

=========== =====================================================================================
fate        the record
=========== =====================================================================================
out         is before the position, and must be sent
filtered    must not be sent: it has been at the target, or a dispatcher's routes exclude it
waiting     must be sent, and is at or after the position: it may be at the target, or not
expired     was copied, and its copy was removed when the target's retention allowed it
left out    is of a range that a user has accepted to leave out
late        (at the target) is in the merger's topic of late records
=========== =====================================================================================

**In which order.** First the position, then the ends of the target, once no transaction is open
before them; then the ends of the source. Hence what the position says is done is counted at the
target, and what is counted at the target is counted at the source.

**What is compared.** Retention removes records from either end. Copies name their records, so of a
mirror and a dispatcher each record of the source is compared, to the offset. One whose copy was
removed from the beginning of the target's topic is missing, unless its time and the retention of
that topic allow that it was deleted. A merger's records name no source, so windows are compared
that start after what was deleted, and one window later.
"""
