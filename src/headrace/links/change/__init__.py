"""A topic gets another number of partitions, or another key: `headrace topics change OLD NEW`.

Kafka can't divide the records of a topic again. So the project declares a second topic, whose
records are copied from the first one, and writers and readers move. Contract:

- *Copying.* Each committed record of OLD is in NEW once, for readers of committed records: with the
  value, headers and timestamp that it has, in the partition and with the key that producers of NEW
  give its event, behind the header ``headrace-origin`` of where it was. Records, and positions in
  OLD, are written in one transaction by what mirrors run (:mod:`headrace.links.copying`). A copy
  that was killed continues; where its positions have expired, NEW says by its headers how far it
  is.
- *Order.* Records of a partition of OLD that come into one partition of NEW keep their order. So
  events of a key keep theirs where a partition of OLD had all of them. The order of two partitions
  of OLD is not known to Kafka, and is any in NEW.
- *Records that can't be decoded* keep their key, and go to the partition of their number, modulo
  those of NEW. Nothing is left out. Where key and partition of NEW depend on the key alone, no
  record is decoded. A record of which it is not known yet which spreads count for its window is
  refused: it has no exact place before they are.
- *The end* is that which OLD has when a copy starts, open transactions included.
- *Late producers.* What is written to OLD after NEW has records of its own is not copied behind
  them unless it is asked for (``--late``): it is shown, and `--copy` is refused. A copy looks for
  such records before it starts; those that come while it runs are found by the check.
- *The check* reads both topics, and compares number, bytes and hashes of records by partition of
  OLD. A hash covers offset, key, value, headers, timestamp and partition, so a missing,
  duplicated or misplaced record is a difference.
- *Readers.* A group moves to the offsets of NEW before which are all records that it has read, and
  none that it has not. Where there are none, or records wait in retry topics of its worker, it is
  refused. All groups of a command are decided before the first one moves.
"""
