"""What a worker sends and the offsets of its records, in one transaction.

A worker with ``Guarantee.EXACTLY_ONCE`` writes nothing while its tasks run. What is sent for a
record is **held** in memory until the record is done. Every ``commit_every`` an instance writes in
one transaction what is held, the dead letters and retries of its policy, and the offsets of its
consumer group. A reader of committed records sees either both or none.

Which records a transaction has: all that are done, or those with the lowest offsets, as many as
brokers take in a part of its time. Those beyond one that is not are in the metadata of the offset,
by which the next owner of the partition leaves them out. Where they do not fit into it, the
partition is neither committed nor read until its records that were read are done.

Order: what is sent for records of one subpartition is written in the order in which they were
done, in the same transaction or in later ones.

A crash repeats records whose transaction was not committed: code runs again, and what it sent the
first time was never visible. Effects other than sends, such as requests, are at least once.

Fencing: brokers take offsets of the group with the member and generation of the instance (KIP-447),
and refuse the transaction of an instance whose partitions went to another one, such as one that was
frozen. The generation is asked for before the partitions are looked at, so a newer one is never
used for partitions that were lost.

A transaction that brokers refused is written again with the next one. Of one without an answer it
is unknown whether it was committed: the instance ends it with a new producer, leaves the group,
joins it again, and starts from the committed offsets. Before a partition goes to another instance,
what is done of it is committed, as far as brokers take it within seconds.
"""
