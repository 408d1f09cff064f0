"""State: one value for each record key, which a worker keeps from record to record.

=========== ====================================================================================
declared    ``state=Visits`` of an exactly-once worker. A function takes ``state: KeyState[..]``,
            a class has ``self.state``
value       of the record's key alone, in the partition that the record is in. Read, changed and
            deleted while the record is processed, by :class:`~headrace.workers.KeyState`
order       records of a key are processed one after the other, each sees what the one before left.
            The next record of a subpartition starts when what the last one sent is confirmed
failure     what a failed attempt changed is dropped. A record that is skipped or becomes a dead
            letter changes nothing
stored      each change is a record of the topic ``GROUP.state``: its key, its partition, the value
            as JSON, a tombstone for a deletion. It is written in the transaction of the offset of
            its record and of what was sent for it, so state, output and position are one
position    each transaction also writes, by a key of its own, the committed offset and its metadata
            into each partition that it has. Where these differ from what the group committed, the
            state is that of another position: the instance is refused
expiry      with ``state_ttl``, a value is over that no record has set for so long, by stream time:
            the highest timestamp of the partition's records up to an offset. A value that was set
            at a record is over at the first record whose stream time is so much later: whatever
            crashes, moves, lanes and retries did meanwhile. A transaction deletes what is over for
            the record at the offset that it commits; nothing that is not done can see it
timers      of a key, each once, called as ``on_timer``: before the first record of its key at which
            stream time has reached it, and after the records of its key before that; in the order
            of their times. Due when a record of any key has brought that stream time, and never by
            the clock. A time before the stream time at its record becomes that. What is sent, set
            and deleted in the call is in one transaction with the removal. What it raises meets
            the policy; one that is skipped, or becomes a dead letter, is removed
restored    when a partition is assigned, its values are read to the high watermark, committed
            records alone. No record of it is processed before; other partitions continue. An open
            transaction of the former owner is waited for, and brokers refuse what that still writes
            (:mod:`headrace.workers.exactly_once`)
memory      keys, values and timers as they are in the topic, for the partitions of the instance,
            up to ``state_bytes``; more ends it. ``get`` decodes, so that no value is shared
types       ``set`` refuses what can't be read as the declared type. A restored value that can't be
            read as that ends the instance before its first record
partitions  the topic has those of the topic that is read. A different number is refused, since
            records of a key would be in two
moves       the next owner of a partition restores it: state is by key, so another number of
            subpartitions needs nothing
reset       ``workers reset`` deletes the state of the partitions that it moves
=========== ====================================================================================
"""
