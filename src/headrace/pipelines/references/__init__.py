"""Reference tables: compacted topics that steps look values up in, at one position per batch.

========== =====================================================================================
position   the end of each partition of the topic when the batch was planned. It is in the batch's
           offset in Spark's checkpoint, so a batch that is repeated, also after a crash, has the
           position that it had before
tasks      learn it from a local property of Spark's job, and all tasks of a batch look values up
           at the same position
table      in each Python worker process that looks values up: read from the start of the topic
           before its first row, and from position to position from then on. A batch before the
           one that it stands at makes the process read the topic from its start
record     the newest one of its key before the position counts; a tombstone deletes the key, and
           so does a record that is no event of its topic, which the log names
compaction deletes records that newer ones of their key replace. A replaced record is read by a
           batch that was planned before it was replaced, as long as it is there:
           ``min.compaction.lag.ms`` of the topic is for how long that is certain. After that, a
           repeated batch finds no record of the key
========== =====================================================================================
"""
